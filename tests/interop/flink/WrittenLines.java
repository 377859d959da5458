package interop;

import java.io.BufferedWriter;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;

/** Writes lines into a folder, in a file for each subtask. */
public final class WrittenLines implements Sink<String> {
    private final String folder;

    public WrittenLines(String folder) {
        this.folder = folder;
    }

    @Override
    public SinkWriter<String> createWriter(WriterInitContext context) throws IOException {
        Path file = Path.of(folder, "part-" + context.getTaskInfo().getIndexOfThisSubtask());
        return new Writer(Files.newBufferedWriter(file));
    }

    private static final class Writer implements SinkWriter<String> {
        private final BufferedWriter file;

        Writer(BufferedWriter file) {
            this.file = file;
        }

        @Override
        public void write(String line, Context context) throws IOException {
            file.write(line);
            file.newLine();
            Written.add(1);
        }

        @Override
        public void flush(boolean atEnd) throws IOException {
            file.flush();
        }

        @Override
        public void close() throws IOException {
            file.close();
        }
    }
}
