package golden;

import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.core.execution.SavepointFormatType;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;

/**
 * Counts the records of Kafka by their values: {@code KafkaGolden SERVERS RECORDS FOLDER key=value...}.
 *
 * <p>The source with the uid "clicks" begins at the first record, and the one with the uid "orders" behind the last.
 * After so many records, the job is stopped with a savepoint in the folder.
 */
public final class KafkaGolden {
    private static CountDownLatch left;

    private KafkaGolden() {}

    private static final class Count extends KeyedProcessFunction<String, String, Long> {
        private transient ValueState<Long> count;

        @Override
        public void open(OpenContext context) {
            count = getRuntimeContext().getState(new ValueStateDescriptor<>("count", Types.LONG));
        }

        @Override
        public void processElement(String value, Context context, Collector<Long> out) throws Exception {
            Long before = count.value();
            count.update(before == null ? 1 : before + 1);
            left.countDown();
        }
    }

    private static DataStream<String> read(
            StreamExecutionEnvironment env, String servers, String topic, OffsetsInitializer begin) {
        KafkaSource<String> source = KafkaSource.<String>builder()
                .setBootstrapServers(servers)
                .setTopics(topic)
                .setStartingOffsets(begin)
                .setValueOnlyDeserializer(new SimpleStringSchema())
                .build();
        return env.fromSource(source, WatermarkStrategy.noWatermarks(), topic).uid(topic);
    }

    public static void main(String[] arguments) throws Exception {
        left = new CountDownLatch(Integer.parseInt(arguments[1]));
        Configuration configuration = new Configuration();
        for (String setting : Arrays.copyOfRange(arguments, 3, arguments.length)) {
            String[] parts = setting.split("=", 2);
            configuration.setString(parts[0], parts[1]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        read(env, arguments[0], "clicks", OffsetsInitializer.earliest())
                .union(read(env, arguments[0], "orders", OffsetsInitializer.latest()))
                .keyBy(value -> value, Types.STRING)
                .process(new Count())
                .uid("counts");
        JobClient job = env.executeAsync();
        left.await();
        System.out.println(job.stopWithSavepoint(false, arguments[2], SavepointFormatType.CANONICAL)
                .get());
        System.exit(0);
    }
}
