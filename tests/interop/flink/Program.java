package interop;

import java.time.Duration;
import java.util.Arrays;
import java.util.TreeMap;
import java.util.stream.StreamSupport;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** The program of {@code interop_program.py}, in Java. */
public final class Program {
    private Program() {}

    private static final class Mean implements AggregateFunction<Long, Tuple2<Long, Long>, Double> {
        @Override
        public Tuple2<Long, Long> createAccumulator() {
            return Tuple2.of(0L, 0L);
        }

        @Override
        public Tuple2<Long, Long> add(Long value, Tuple2<Long, Long> sum) {
            return Tuple2.of(sum.f0 + value, sum.f1 + 1);
        }

        @Override
        public Double getResult(Tuple2<Long, Long> sum) {
            return sum.f0 / (double) sum.f1;
        }

        @Override
        public Tuple2<Long, Long> merge(Tuple2<Long, Long> left, Tuple2<Long, Long> right) {
            return Tuple2.of(left.f0 + right.f0, left.f1 + right.f1);
        }
    }

    private static final class Kinds extends KeyedProcessFunction<Long, Tuple3<Long, Long, Long>, String> {
        private transient ValueState<Long> value;
        private transient ListState<Long> list;
        private transient MapState<String, Long> map;
        private transient ReducingState<Long> reducing;
        private transient AggregatingState<Long, Double> aggregating;
        private transient ValueState<Long> hour;
        private transient ValueState<Long> day;

        @Override
        public void open(OpenContext context) {
            value = getRuntimeContext().getState(new ValueStateDescriptor<>("value", Types.LONG));
            list = getRuntimeContext().getListState(new ListStateDescriptor<>("list", Types.LONG));
            map = getRuntimeContext().getMapState(new MapStateDescriptor<>("map", Types.STRING, Types.LONG));
            reducing = getRuntimeContext()
                    .getReducingState(new ReducingStateDescriptor<>("reducing", Long::sum, Types.LONG));
            aggregating = getRuntimeContext()
                    .getAggregatingState(new AggregatingStateDescriptor<>(
                            "aggregating", new Mean(), Types.<Tuple2<Long, Long>>TUPLE(Types.LONG, Types.LONG)));
            hour = getRuntimeContext().getState(expiring("hour", Duration.ofHours(1)));
            day = getRuntimeContext().getState(expiring("day", Duration.ofDays(1)));
        }

        private static ValueStateDescriptor<Long> expiring(String name, Duration time) {
            ValueStateDescriptor<Long> descriptor = new ValueStateDescriptor<>(name, Types.LONG);
            descriptor.enableTimeToLive(StateTtlConfig.newBuilder(time).build());
            return descriptor;
        }

        @Override
        public void processElement(Tuple3<Long, Long, Long> record, Context context, Collector<String> out)
                throws Exception {
            long added = record.f2;
            long key = record.f1;
            list.add(added);
            map.put("m" + added % 3, added);
            reducing.add(added);
            aggregating.add(added);
            TreeMap<String, Long> sorted = new TreeMap<>();
            map.entries().forEach(entry -> sorted.put(entry.getKey(), entry.getValue()));
            String text = String.join(
                    " ", sorted.entrySet().stream().map(e -> e.getKey() + "=" + e.getValue()).toList());
            long listed = StreamSupport.stream(list.get().spliterator(), false).count();
            out.collect(String.format(
                    "kinds,%d,%s,%d,%s,%d,%.3f,%s,%s",
                    key, shown(value.value()), listed, text, reducing.get(), aggregating.get(), shown(hour.value()), shown(day.value())));
            value.update(added);
            hour.update(added);
            day.update(added);
            context.timerService().registerEventTimeTimer(record.f0 + 1000);
            context.timerService().registerProcessingTimeTimer(CLOCK_MS + added);
        }

        private static String shown(Long value) {
            return value == null ? "-" : value.toString();
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<String> out) throws Exception {
            out.collect(String.format(
                    "%s,%d,%d,%d",
                    context.timeDomain() == org.apache.flink.streaming.api.TimeDomain.EVENT_TIME ? "event" : "clock",
                    context.getCurrentKey(),
                    timestamp,
                    value.value()));
        }
    }

    private static final class Sum extends ProcessWindowFunction<Tuple3<Long, Long, Long>, String, String, TimeWindow> {
        private final String name;

        Sum(String name) {
            this.name = name;
        }

        @Override
        public void process(
                String key, Context context, Iterable<Tuple3<Long, Long, Long>> records, Collector<String> out) {
            long sum = 0;
            for (Tuple3<Long, Long, Long> record : records) {
                sum += record.f2;
            }
            out.collect(String.format("%s,%s,%d,%d,%d", name, key, context.window().getStart(), context.window().getEnd(), sum));
        }
    }

    /** The beginning of the clock, from which the timers of processing time count. */
    private static final long CLOCK_MS = 1700000000000L;

    private static Tuple3<Long, Long, Long> parsed(String line) {
        String[] parts = line.split(",");
        return Tuple3.of(Long.parseLong(parts[0]), Long.parseLong(parts[1]), Long.parseLong(parts[2]));
    }

    private static DataStream<String> build(DataStream<String> lines) {
        DataStream<Tuple3<Long, Long, Long>> records = lines.map(Program::parsed)
                .returns(Types.TUPLE(Types.LONG, Types.LONG, Types.LONG))
                .setParallelism(1);
        KeyedStream<Tuple3<Long, Long, Long>, String> named =
                records.keyBy(record -> "key " + record.f1, Types.STRING);
        DataStream<String> kinds = records.keyBy(record -> record.f1, Types.LONG)
                .process(new Kinds())
                .returns(Types.STRING)
                .uid("kinds");
        DataStream<String> tumbling = named.window(TumblingEventTimeWindows.of(Duration.ofSeconds(10)))
                .reduce((left, right) -> Tuple3.of(left.f0, left.f1, left.f2 + right.f2), new Sum("tumbling"))
                .returns(Types.STRING)
                .uid("tumbling");
        DataStream<String> sessions = named.window(EventTimeSessionWindows.withGap(Duration.ofSeconds(10)))
                .process(new Sum("sessions"))
                .returns(Types.STRING)
                .uid("sessions");
        return kinds.union(tumbling, sessions);
    }

    /** Runs the program: {@code LINES OUTPUT FOLDER|- FORMAT key=value...}. */
    public static void main(String[] arguments) throws Exception {
        Configuration configuration = new Configuration();
        for (String setting : Arrays.copyOfRange(arguments, 4, arguments.length)) {
            String[] parts = setting.split("=", 2);
            configuration.setString(parts[0], parts[1]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        build(Lines.of(env, arguments[0])).sinkTo(new WrittenLines(arguments[1])).uid("written");
        JobClient job = env.executeAsync();
        System.out.println(Run.end(job, arguments[0], arguments[2], arguments[3]));
        System.exit(0);
    }
}
