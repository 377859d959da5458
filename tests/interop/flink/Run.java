package interop;

import java.io.IOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.stream.Stream;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.util.ExceptionUtils;

/** Brings a job to its end. */
public final class Run {
    private Run() {}

    /** Waits for the end of the job, or if a folder is given (not "-"), stops the job with a savepoint there. */
    public static String end(JobClient job, String lines, String folder, String format) throws Exception {
        if (!folder.equals("-")) {
            return stop(job, lines, folder, format);
        }
        job.getJobExecutionResult().get();
        return "";
    }

    /** Waits until all lines are read, and stops the job with a savepoint; returns the savepoint's path. */
    public static String stop(JobClient job, String lines, String folder, String format) throws Exception {
        while (true) {
            await(job, Path.of(lines + ".read"));
            try {
                return job.stopWithSavepoint(false, folder, SavepointFormatType.valueOf(format)).get();
            } catch (ExecutionException error) {
                // A short input is read before the last task runs, or while one ends.
                if (!ExceptionUtils.stringifyException(error).matches("(?s).*(Not all required tasks are currently running|Task local checkpoint failure).*")) {
                    throw error;
                }
            }
        }
    }

    /** Waits until all lines are read if they are given, then for a checkpoint; cancels and returns what is retained. */
    public static String cancel(JobClient job, String lines, String folder) throws Exception {
        Path all = Path.of(URI.create(folder)).resolve(job.getJobID().toString());
        if (lines != null) {
            await(job, Path.of(lines + ".read"));
        }
        Optional<Integer> before = last(all);
        while (last(all).orElse(0) < before.orElse(0) + 3) {
            await(job, all);
        }
        job.cancel().get();
        while (!job.getJobStatus().get().isGloballyTerminalState()) {
            Thread.sleep(20);
        }
        return all.resolve("chk-" + last(all).get()).toString();
    }

    private static Optional<Integer> last(Path folder) throws IOException {
        if (!Files.exists(folder)) {
            return Optional.empty();
        }
        try (Stream<Path> files = Files.list(folder)) {
            return files.map(file -> file.getFileName().toString())
                    .filter(name -> name.startsWith("chk-") && Files.exists(folder.resolve(name).resolve("_metadata")))
                    .map(name -> Integer.parseInt(name.substring(4)))
                    .max(Comparator.naturalOrder());
        }
    }

    private static void await(JobClient job, Path file) throws Exception {
        do {
            if (job.getJobStatus().get().isGloballyTerminalState()) {
                job.getJobExecutionResult().get();
                throw new IllegalStateException("the job has ended too early");
            }
            Thread.sleep(20);
        } while (!Files.exists(file));
    }
}
