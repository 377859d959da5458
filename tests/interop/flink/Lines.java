package interop;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.apache.flink.api.common.eventtime.Watermark;
import org.apache.flink.api.common.eventtime.WatermarkGenerator;
import org.apache.flink.api.common.eventtime.WatermarkOutput;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.connector.source.ReaderOutput;
import org.apache.flink.api.connector.source.SourceReader;
import org.apache.flink.api.connector.source.SourceReaderContext;
import org.apache.flink.api.connector.source.lib.NumberSequenceSource;
import org.apache.flink.api.connector.source.lib.util.IteratorSourceReader;
import org.apache.flink.core.io.InputStatus;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.NumberSequenceIterator;

/**
 * The lines of a file as a stream of one subtask, so that their order is known.
 *
 * <p>A line {@code w,1000} is a watermark, and goes no further. Any other line begins with its timestamp. A file beside
 * the lines, with the suffix {@code .held}, makes the source stay open after the last line: it then writes the file
 * {@code .read}, and the job ends by a savepoint only, without a last watermark. A file {@code .first} has the number
 * of lines that the job must have written before the first line is read.
 */
public final class Lines extends NumberSequenceSource {
    private final String path;

    private Lines(String path, long size) {
        super(0, size - 1);
        this.path = path;
    }

    /** Returns the stream of a file's lines. */
    public static DataStream<String> of(StreamExecutionEnvironment env, String path) {
        return of(env, path, 1);
    }

    /** Returns the stream of a file's lines; of more subtasks than one, all but one end at once. */
    public static DataStream<String> of(StreamExecutionEnvironment env, String path, int parallelism) {
        long size = read(path).size();
        return env.fromSource(new Lines(path, size), WatermarkStrategy.noWatermarks(), "lines")
                .uid("source of " + Path.of(path).getFileName())
                .setParallelism(parallelism)
                .map(new LineOf(path))
                .setParallelism(parallelism)
                .assignTimestampsAndWatermarks(
                        WatermarkStrategy.<String>forGenerator(context -> new WrittenWatermarks())
                                .withTimestampAssigner((line, none) -> number(line)))
                .setParallelism(parallelism)
                .filter(line -> !line.startsWith("w,"))
                .setParallelism(parallelism);
    }

    @Override
    public SourceReader<Long, NumberSequenceSplit> createReader(SourceReaderContext context) {
        return new Reader(context, path);
    }

    @Override
    protected List<NumberSequenceSplit> splitNumberRange(long from, long to, int splits) {
        return super.splitNumberRange(from, to, 1);
    }

    private static List<String> read(String path) {
        try {
            return Files.readAllLines(Path.of(path));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static long number(String line) {
        return Long.parseLong(line.split(",", 3)[line.startsWith("w,") ? 1 : 0]);
    }

    private static final class Reader
            extends IteratorSourceReader<Long, NumberSequenceIterator, NumberSequenceSplit> {
        private final Path held;
        private final Path read;
        private final CompletableFuture<Void> first;
        private boolean begun;
        private boolean atEnd;

        Reader(SourceReaderContext context, String path) {
            super(context);
            held = Path.of(path + ".held");
            read = Path.of(path + ".read");
            Path needed = Path.of(path + ".first");
            first = Written.atLeast(Files.exists(needed) ? Integer.parseInt(Lines.read(needed.toString()).get(0)) : 0);
        }

        @Override
        public InputStatus pollNext(ReaderOutput<Long> output) {
            if (!first.isDone()) {
                return InputStatus.NOTHING_AVAILABLE;
            }
            InputStatus status = super.pollNext(output);
            if (status != InputStatus.END_OF_INPUT || !begun || !Files.exists(held)) {
                return status;
            }
            if (!atEnd) {
                atEnd = true;
                try {
                    Files.createFile(read);
                } catch (IOException error) {
                    throw new UncheckedIOException(error);
                }
            }
            return InputStatus.NOTHING_AVAILABLE;
        }

        @Override
        protected Long convert(Long number) {
            begun = true;
            return number;
        }

        @Override
        public CompletableFuture<Void> isAvailable() {
            if (atEnd) {
                return new CompletableFuture<>();
            }
            return first.isDone() ? super.isAvailable() : first;
        }
    }

    private static final class LineOf extends RichMapFunction<Long, String> {
        private final String path;
        private transient List<String> lines;

        LineOf(String path) {
            this.path = path;
        }

        @Override
        public void open(OpenContext context) {
            lines = read(path);
        }

        @Override
        public String map(Long number) {
            return lines.get(number.intValue());
        }
    }

    private static final class WrittenWatermarks implements WatermarkGenerator<String> {
        @Override
        public void onEvent(String line, long timestamp, WatermarkOutput output) {
            if (line.startsWith("w,")) {
                output.emitWatermark(new Watermark(timestamp));
            }
        }

        @Override
        public void onPeriodicEmit(WatermarkOutput output) {}
    }
}
