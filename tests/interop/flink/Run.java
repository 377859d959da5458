package interop;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ExecutionException;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.util.ExceptionUtils;

/** Brings a job to its end. */
public final class Run {
    private Run() {}

    /** Waits until all lines are read, and stops the job with a savepoint; returns the savepoint's path. */
    public static String stop(JobClient job, String lines, String folder, String format) throws Exception {
        while (true) {
            if (job.getJobStatus().get().isGloballyTerminalState()) {
                job.getJobExecutionResult().get();
                throw new IllegalStateException("the job ended before all lines were read");
            }
            if (Files.exists(Path.of(lines + ".read"))) {
                try {
                    return job.stopWithSavepoint(false, folder, SavepointFormatType.valueOf(format)).get();
                } catch (ExecutionException error) {
                    // A short input is read before the last task runs.
                    if (!ExceptionUtils.stringifyException(error).contains("Not all required tasks are currently running")) {
                        throw error;
                    }
                }
            }
            Thread.sleep(20);
        }
    }
}
