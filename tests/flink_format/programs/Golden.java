package golden;

import interop.Lines;
import interop.Run;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.state.AggregatingState;
import org.apache.flink.api.common.state.AggregatingStateDescriptor;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ReducingState;
import org.apache.flink.api.common.state.ReducingStateDescriptor;
import org.apache.flink.api.common.state.StateDescriptor;
import org.apache.flink.api.common.state.StateTtlConfig;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.BasicTypeInfo;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.core.execution.JobClient;
import org.apache.flink.runtime.state.FunctionInitializationContext;
import org.apache.flink.runtime.state.FunctionSnapshotContext;
import org.apache.flink.streaming.api.checkpoint.CheckpointedFunction;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.co.KeyedBroadcastProcessFunction;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.GlobalWindow;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.streaming.api.windowing.windows.Window;
import org.apache.flink.types.Row;
import org.apache.flink.util.Collector;

/**
 * Writes a savepoint of each type and kind of state: {@code Golden WHAT LINES FOLDER FORMAT key=value...}.
 *
 * <p>WHAT is {@code all}, {@code small} (without the operators of most types), {@code finished} (small, of a source
 * one of whose two subtasks has ended, and beside operators that have ended), or {@code slow} (records wait).
 *
 * <p>What the savepoint then has is in {@code tests/flink_format/golden_content.py}.
 */
public final class Golden {
    private Golden() {}

    /** An enum, whose ordinals are written. */
    public enum Colour {
        RED,
        GREEN,
        BLUE
    }

    /** A class with public fields. */
    public static class Pojo {
        public long id;
        public String name;
        public Double score;
        public List<String> tags;

        public Pojo() {}

        public Pojo(long id, String name, Double score, List<String> tags) {
            this.id = id;
            this.name = name;
            this.score = score;
            this.tags = tags;
        }
    }

    /** A class that only Kryo can write. */
    public static final class Opaque {
        private final long id;

        Opaque(long id) {
            this.id = id;
        }

        /** Returns the number given. */
        public long id() {
            return id;
        }
    }

    /** A type, and its value for key 1 and for all other keys. */
    private static final class Sample {
        final String name;
        final TypeInformation<?> type;
        final Object first;
        final Object other;

        Sample(String name, TypeInformation<?> type, Object first, Object other) {
            this.name = name;
            this.type = type;
            this.first = first;
            this.other = other;
        }
    }

    private static <K, V> Map<K, V> map(K key, V value) {
        Map<K, V> map = new TreeMap<>();
        map.put(key, value);
        return map;
    }

    private static Sample[] samples() {
        TypeInformation<?> named =
                Types.ROW_NAMED(new String[] {"id", "name"}, Types.LONG, Types.STRING);
        return new Sample[] {
            new Sample("boolean", Types.BOOLEAN, true, false),
            new Sample("byte", Types.BYTE, Byte.MAX_VALUE, Byte.MIN_VALUE),
            new Sample("short", Types.SHORT, Short.MAX_VALUE, Short.MIN_VALUE),
            new Sample("int", Types.INT, Integer.MAX_VALUE, Integer.MIN_VALUE),
            new Sample("long", Types.LONG, Long.MAX_VALUE, Long.MIN_VALUE),
            new Sample("float", Types.FLOAT, 1.5f, Float.NaN),
            new Sample("double", Types.DOUBLE, 1e300, Double.NEGATIVE_INFINITY),
            new Sample("char", Types.CHAR, '\u20ac', 'a'),
            new Sample("string", Types.STRING, "na\u00efve \u20ac \ud83d\ude00", ""),
            new Sample("long_string", Types.STRING, "a".repeat(126), "b".repeat(127)),
            new Sample("big_int", Types.BIG_INT, BigInteger.ONE.shiftLeft(70), BigInteger.ZERO),
            new Sample("big_int_small", Types.BIG_INT, BigInteger.TEN, BigInteger.ONE.negate()),
            new Sample("big_dec", Types.BIG_DEC, new BigDecimal("12345.6789"), new BigDecimal("-1E+5")),
            new Sample("big_dec_small", Types.BIG_DEC, BigDecimal.ZERO, BigDecimal.TEN),
            new Sample("date", BasicTypeInfo.DATE_TYPE_INFO, new Date(1700000000123L), new Date(-1)),
            new Sample("sql_date", Types.SQL_DATE, java.sql.Date.valueOf("2024-02-29"), new java.sql.Date(0)),
            new Sample("sql_time", Types.SQL_TIME, java.sql.Time.valueOf("23:59:59"), new java.sql.Time(0)),
            new Sample(
                    "sql_timestamp",
                    Types.SQL_TIMESTAMP,
                    java.sql.Timestamp.valueOf("2024-02-29 12:30:00.123456789"),
                    new java.sql.Timestamp(-1)),
            new Sample("local_date", Types.LOCAL_DATE, LocalDate.of(2024, 2, 29), LocalDate.of(-1, 1, 1)),
            new Sample(
                    "local_time", Types.LOCAL_TIME, LocalTime.of(23, 59, 59, 999999999), LocalTime.MIDNIGHT),
            new Sample(
                    "local_date_time",
                    Types.LOCAL_DATE_TIME,
                    LocalDateTime.of(2024, 2, 29, 12, 30, 0, 5),
                    LocalDateTime.of(1969, 12, 31, 23, 59, 59)),
            new Sample("instant", Types.INSTANT, Instant.ofEpochSecond(1700000000, 5), Instant.ofEpochMilli(-1)),
            new Sample("booleans", Types.PRIMITIVE_ARRAY(Types.BOOLEAN), new boolean[] {true, false}, new boolean[0]),
            new Sample("bytes", Types.PRIMITIVE_ARRAY(Types.BYTE), new byte[] {0, -1}, new byte[0]),
            new Sample("shorts", Types.PRIMITIVE_ARRAY(Types.SHORT), new short[] {1, -1}, new short[0]),
            new Sample("ints", Types.PRIMITIVE_ARRAY(Types.INT), new int[] {1, -1}, new int[0]),
            new Sample("longs", Types.PRIMITIVE_ARRAY(Types.LONG), new long[] {1, -1}, new long[0]),
            new Sample("floats", Types.PRIMITIVE_ARRAY(Types.FLOAT), new float[] {1.5f}, new float[0]),
            new Sample("doubles", Types.PRIMITIVE_ARRAY(Types.DOUBLE), new double[] {1.5}, new double[0]),
            new Sample(
                    "chars", PrimitiveArrayTypeInfo.CHAR_PRIMITIVE_ARRAY_TYPE_INFO, new char[] {'a', '\u20ac'}, new char[0]),
            new Sample("strings", Types.OBJECT_ARRAY(Types.STRING), new String[] {"a", null, ""}, new String[0]),
            new Sample("boxed", Types.OBJECT_ARRAY(Types.LONG), new Long[] {1L, null}, new Long[0]),
            new Sample(
                    "string_array",
                    org.apache.flink.api.common.typeinfo.BasicArrayTypeInfo.STRING_ARRAY_TYPE_INFO,
                    new String[] {"a", null, ""},
                    new String[0]),
            new Sample("list", Types.LIST(Types.LONG), new ArrayList<>(Arrays.asList(1L, 2L)), new ArrayList<>()),
            new Sample("map", Types.MAP(Types.STRING, Types.LONG), map("a", 1L), map("none", null)),
            new Sample("tuple", Types.TUPLE(Types.LONG, Types.STRING), Tuple2.of(1L, "a"), Tuple2.of(-1L, null)),
            new Sample("row", Types.ROW(Types.LONG, Types.STRING), Row.of(1L, null), Row.of(null, "a")),
            new Sample("row_named", named, Row.of(1L, null), Row.of(null, "a")),
            new Sample("row_wide", Types.ROW(wide()), Row.of(0, 1, 2, 3, 4, 5, 6, 7), new Row(8)),
            new Sample("nested", Types.ROW(named, Types.LIST(named)), nested(), Row.of(null, new ArrayList<>())),
            new Sample("enum", Types.ENUM(Colour.class), Colour.RED, Colour.BLUE),
            new Sample(
                    "pojo",
                    Types.POJO(Pojo.class),
                    new Pojo(1, "a", 1.5, new ArrayList<>(Arrays.asList("x", "y"))),
                    new Pojo(-1, null, null, null)),
            new Sample("kryo", Types.GENERIC(Opaque.class), new Opaque(1), new Opaque(2)),
        };
    }

    private static TypeInformation<?>[] wide() {
        TypeInformation<?>[] types = new TypeInformation<?>[8];
        Arrays.fill(types, Types.INT);
        return types;
    }

    private static Row nested() {
        return Row.of(Row.of(1L, "a"), new ArrayList<>(Arrays.asList(Row.of(2L, "b"), Row.of(3L, null))));
    }

    /** A ValueState of each type. */
    private static final class Values extends KeyedProcessFunction<Long, String, Long> {
        private transient Sample[] samples;
        private transient List<ValueState<Object>> states;

        @Override
        @SuppressWarnings("unchecked")
        public void open(OpenContext context) {
            samples = samples();
            states = new ArrayList<>();
            for (Sample sample : samples) {
                states.add(getRuntimeContext()
                        .getState(new ValueStateDescriptor<>(sample.name, (TypeInformation<Object>) sample.type)));
            }
        }

        @Override
        public void processElement(String line, Context context, Collector<Long> out) throws Exception {
            for (int i = 0; i < samples.length; i++) {
                states.get(i).update(key(line) == 1 ? samples[i].first : samples[i].other);
            }
        }
    }

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

    /** The five kinds of state, with and without time to live, and timers. */
    private static final class Kinds extends KeyedProcessFunction<Long, String, Long> {
        private transient List<ValueState<Long>> values;
        private transient List<ListState<String>> lists;
        private transient List<MapState<String, String>> maps;
        private transient List<ReducingState<Long>> reducing;
        private transient List<AggregatingState<Long, Double>> aggregating;

        @Override
        public void open(OpenContext context) {
            values = new ArrayList<>();
            lists = new ArrayList<>();
            maps = new ArrayList<>();
            reducing = new ArrayList<>();
            aggregating = new ArrayList<>();
            for (String suffix : List.of("", "_ttl")) {
                values.add(getRuntimeContext().getState(made(new ValueStateDescriptor<>("value" + suffix, Types.LONG))));
                lists.add(getRuntimeContext()
                        .getListState(made(new ListStateDescriptor<>("list" + suffix, Types.STRING))));
                maps.add(getRuntimeContext()
                        .getMapState(made(new MapStateDescriptor<>("map" + suffix, Types.STRING, Types.STRING))));
                reducing.add(getRuntimeContext()
                        .getReducingState(made(new ReducingStateDescriptor<>("reducing" + suffix, Long::sum, Types.LONG))));
                aggregating.add(getRuntimeContext()
                        .getAggregatingState(made(new AggregatingStateDescriptor<>(
                                "aggregating" + suffix, new Mean(), Types.<Tuple2<Long, Long>>TUPLE(Types.LONG, Types.LONG)))));
            }
        }

        private static <D extends StateDescriptor<?, ?>> D made(D descriptor) {
            if (descriptor.getName().endsWith("_ttl")) {
                descriptor.enableTimeToLive(StateTtlConfig.newBuilder(Duration.ofDays(1)).build());
            }
            return descriptor;
        }

        @Override
        public void processElement(String line, Context context, Collector<Long> out) throws Exception {
            long time = context.timestamp();
            for (int i = 0; i < values.size(); i++) {
                values.get(i).update(time);
                lists.get(i).add("at " + time);
                maps.get(i).put("at", String.valueOf(time));
                // A value that is null: StringSerializer can write it, which the canonical format of the heap needs.
                maps.get(i).put("none", null);
                reducing.get(i).add(time);
                aggregating.get(i).add(time);
            }
            context.timerService().registerEventTimeTimer(time + 10);
            context.timerService().registerProcessingTimeTimer(4102444800000L + time);
        }

        @Override
        public void onTimer(long timestamp, OnTimerContext context, Collector<Long> out) {}
    }

    /** One value, for keys of another type. */
    private static final class Latest<K> extends KeyedProcessFunction<K, String, Long> {
        private transient ValueState<Long> latest;

        @Override
        public void open(OpenContext context) {
            latest = getRuntimeContext().getState(new ValueStateDescriptor<>("latest", Types.LONG));
        }

        @Override
        public void processElement(String line, Context context, Collector<Long> out) throws Exception {
            latest.update(context.timestamp());
        }
    }

    private static final class Size<W extends Window> extends ProcessWindowFunction<String, Long, Long, W> {
        @Override
        public void process(Long key, Context context, Iterable<String> lines, Collector<Long> out) {
            out.collect(key);
        }
    }

    private static final MapStateDescriptor<String, Long> RULES =
            new MapStateDescriptor<>("rules", Types.STRING, Types.LONG);

    private static final class Rules extends KeyedBroadcastProcessFunction<Long, String, String, Long> {
        @Override
        public void processElement(String line, ReadOnlyContext context, Collector<Long> out) {}

        @Override
        public void processBroadcastElement(String line, Context context, Collector<Long> out) throws Exception {
            context.getBroadcastState(RULES).put("rule " + key(line), context.timestamp());
        }
    }

    /** Operator state: a list that is split, and one that all subtasks get. */
    private static final class Operator extends RichMapFunction<String, String> implements CheckpointedFunction {
        private transient List<String> seen;
        private transient ListState<String> split;
        private transient ListState<Long> union;

        @Override
        public String map(String line) {
            seen.add(line);
            return line;
        }

        @Override
        public void initializeState(FunctionInitializationContext context) throws Exception {
            seen = new ArrayList<>();
            split = context.getOperatorStateStore().getListState(new ListStateDescriptor<>("split", Types.STRING));
            union = context.getOperatorStateStore().getUnionListState(new ListStateDescriptor<>("union", Types.LONG));
        }

        @Override
        public void snapshotState(FunctionSnapshotContext context) throws Exception {
            split.update(seen);
            union.update(List.of((long) seen.size()));
        }
    }

    private static long key(String line) {
        return Long.parseLong(line.split(",")[1]);
    }

    private static <K> void by(DataStream<String> lines, String uid, KeySelector<String, K> selector, TypeInformation<K> type) {
        lines.keyBy(selector, type).process(new Latest<>()).uid(uid);
    }

    /** Takes its time, so that records wait before it. */
    private static final class Slow extends RichMapFunction<String, String> {
        @Override
        public String map(String line) throws InterruptedException {
            Thread.sleep(50);
            return line;
        }
    }

    private static void build(DataStream<String> lines) {
        buildSmall(lines);
        KeyedStream<String, Long> keyed = lines.keyBy(Golden::key, Types.LONG);
        keyed.process(new Values()).uid("values");
        by(lines, "by-string", line -> "key " + key(line), Types.STRING);
        by(lines, "by-tuple", line -> Tuple2.of(key(line), "a"), Types.TUPLE(Types.LONG, Types.STRING));
        by(lines, "by-row", line -> Row.of(key(line), "a"), Types.ROW(Types.LONG, Types.STRING));
        keyed.window(TumblingEventTimeWindows.of(Duration.ofSeconds(10)))
                .process(new Size<TimeWindow>())
                .uid("tumbling-process");
        keyed.window(EventTimeSessionWindows.withGap(Duration.ofSeconds(5)))
                .reduce((left, right) -> left + right)
                .uid("sessions-reduce");
        keyed.countWindow(3).process(new Size<GlobalWindow>()).uid("count-process");
    }

    private static void buildSmall(DataStream<String> lines) {
        KeyedStream<String, Long> keyed = lines.keyBy(Golden::key, Types.LONG);
        keyed.process(new Kinds()).uid("kinds");
        keyed.window(TumblingEventTimeWindows.of(Duration.ofSeconds(10)))
                .reduce((left, right) -> left + right)
                .uid("tumbling-reduce");
        keyed.window(EventTimeSessionWindows.withGap(Duration.ofSeconds(5)))
                .process(new Size<TimeWindow>())
                .uid("sessions-process");
        keyed.connect(lines.broadcast(RULES)).process(new Rules()).uid("broadcast");
        lines.rebalance().map(new Operator()).uid("operator-state");
    }

    /** Runs the job and stops it with a savepoint. */
    public static void main(String[] arguments) throws Exception {
        String what = arguments[0];
        String path = arguments[1];
        Configuration configuration = new Configuration();
        for (String setting : Arrays.copyOfRange(arguments, 4, arguments.length)) {
            String[] parts = setting.split("=", 2);
            configuration.setString(parts[0], parts[1]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        DataStream<String> lines = Lines.of(env, path, what.equals("finished") ? 2 : 1);
        if (what.equals("all")) {
            build(lines);
        } else if (what.equals("slow")) {
            lines.rebalance().map(new Slow()).uid("slow");
        } else {
            buildSmall(lines);
        }
        if (what.equals("finished")) {
            Lines.of(env, path + ".ended", 1).keyBy(Golden::key, Types.LONG).process(new Latest<>()).uid("ended");
        }
        JobClient job = env.executeAsync();
        System.out.println(
                arguments[3].equals("CHECKPOINT")
                        ? Run.cancel(job, what.equals("slow") ? null : path, arguments[2])
                        : Run.stop(job, path, arguments[2], arguments[3]));
        System.exit(0);
    }
}
