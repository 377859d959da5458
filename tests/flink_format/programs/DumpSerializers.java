// Prints the snapshot of each serializer and the bytes of values: one line each, in hexadecimal digits.
//
// It wrote java_serializers.txt, with the class path of Flink 2.3 and of its Python jar:
//     TZ=UTC java -cp "lib/*:opt/flink-python-2.3.0.jar" DumpSerializers.java > ../java_serializers.txt

import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.serialization.SerializerConfigImpl;
import org.apache.flink.api.common.typeinfo.BasicArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.BasicTypeInfo;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.common.typeutils.TypeSerializer;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.LongSerializer;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.typeutils.EitherTypeInfo;
import org.apache.flink.api.java.typeutils.GenericTypeInfo;
import org.apache.flink.api.java.typeutils.ObjectArrayTypeInfo;
import org.apache.flink.api.java.typeutils.runtime.NullableSerializer;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.state.VoidNamespaceSerializer;
import org.apache.flink.runtime.state.ttl.TtlStateFactory;
import org.apache.flink.runtime.state.ttl.TtlValue;
import org.apache.flink.streaming.api.operators.TimerHeapInternalTimer;
import org.apache.flink.streaming.api.operators.TimerSerializer;
import org.apache.flink.streaming.api.utils.ByteArrayWrapper;
import org.apache.flink.streaming.api.utils.ByteArrayWrapperSerializer;
import org.apache.flink.streaming.api.windowing.windows.GlobalWindow;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.types.Either;
import org.apache.flink.types.Row;
import org.apache.flink.types.RowKind;

@SuppressWarnings({"unchecked", "rawtypes"})
public class DumpSerializers {
    static final SerializerConfigImpl CONFIG = new SerializerConfigImpl();

    public static class Person {
        public long id;
        public String name;
        public List<Long> scores;
    }

    public static class Employee extends Person {
        public int salary;
    }

    public static class Worker extends Person {
        public int hours;
    }

    public static class Unknown {
        final Object part;

        Unknown(int part) {
            this.part = part;
        }
    }

    public enum Color {
        RED,
        GREEN,
        BLUE
    }

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte one : bytes) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }

    static void dump(String name, TypeInformation type, Object... values) throws Exception {
        dump(name, type.createSerializer(CONFIG), values);
    }

    static void dump(String name, TypeSerializer serializer, Object... values) throws Exception {
        DataOutputSerializer[] chunks = new DataOutputSerializer[values.length];
        for (int at = 0; at < values.length; at++) {
            chunks[at] = new DataOutputSerializer(100);
            serializer.serialize(values[at], chunks[at]);
        }
        DataOutputSerializer snapshot = new DataOutputSerializer(100);
        TypeSerializerSnapshot.writeVersionedSnapshot(snapshot, serializer.snapshotConfiguration());
        System.out.println(name + " " + serializer.getLength() + " " + hex(snapshot.getCopyOfBuffer()));
        for (DataOutputSerializer chunk : chunks) {
            System.out.println("- " + hex(chunk.getCopyOfBuffer()));
        }
    }

    public static void main(String[] arguments) throws Exception {
        dump("BOOLEAN", Types.BOOLEAN, true, false);
        dump("BYTE", Types.BYTE, (byte) -2);
        dump("SHORT", Types.SHORT, (short) -2);
        dump("INT", Types.INT, -2);
        dump("LONG", Types.LONG, -2L);
        dump("FLOAT", Types.FLOAT, 1.5f);
        dump("DOUBLE", Types.DOUBLE, 1.5);
        dump("CHAR", Types.CHAR, 'é');
        dump("STRING", Types.STRING, null, "", "a", "é€", "😀", "x".repeat(127), "y".repeat(20000));
        BigInteger large = new BigInteger("123456789012345678901234567890");
        dump("BIG_INT", Types.BIG_INT, null, BigInteger.ZERO, BigInteger.ONE, BigInteger.TEN,
            BigInteger.valueOf(-1), BigInteger.valueOf(-128), BigInteger.valueOf(128), large);
        dump("BIG_DEC", Types.BIG_DEC, null, new BigDecimal("0.00"), BigDecimal.ONE, new BigDecimal("1E+30"),
            new BigDecimal("-12.50"));
        dump("SQL_DATE", Types.SQL_DATE, null, java.sql.Date.valueOf("2024-02-29"),
            java.sql.Date.valueOf("1950-02-28"));
        dump("SQL_TIME", Types.SQL_TIME, null, java.sql.Time.valueOf("01:02:03"));
        dump("SQL_TIMESTAMP", Types.SQL_TIMESTAMP, null,
            java.sql.Timestamp.valueOf("2024-02-29 01:02:03.123456"),
            java.sql.Timestamp.valueOf("1950-02-28 01:02:03.123456"));
        dump("DATE", BasicTypeInfo.DATE_TYPE_INFO, null, new java.util.Date(-1));
        dump("LOCAL_DATE", Types.LOCAL_DATE, null, LocalDate.of(2024, 2, 29));
        dump("LOCAL_TIME", Types.LOCAL_TIME, null, LocalTime.of(1, 2, 3, 4000));
        dump("LOCAL_DATE_TIME", Types.LOCAL_DATE_TIME, null, LocalDateTime.of(2024, 2, 29, 1, 2, 3, 4000));
        dump("INSTANT", Types.INSTANT, null, Instant.ofEpochSecond(-5, 6));
        dump("BYTES", PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO, new byte[] {1, -1});
        dump("BOOLEANS", PrimitiveArrayTypeInfo.BOOLEAN_PRIMITIVE_ARRAY_TYPE_INFO, new boolean[] {true, false});
        dump("SHORTS", PrimitiveArrayTypeInfo.SHORT_PRIMITIVE_ARRAY_TYPE_INFO, new short[] {1, -2});
        dump("INTS", PrimitiveArrayTypeInfo.INT_PRIMITIVE_ARRAY_TYPE_INFO, new int[] {1, -2});
        dump("LONGS", PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO, new long[] {1, -2});
        dump("FLOATS", PrimitiveArrayTypeInfo.FLOAT_PRIMITIVE_ARRAY_TYPE_INFO, new float[] {1, -2});
        dump("DOUBLES", PrimitiveArrayTypeInfo.DOUBLE_PRIMITIVE_ARRAY_TYPE_INFO, new double[] {1, -2});
        dump("CHARS", PrimitiveArrayTypeInfo.CHAR_PRIMITIVE_ARRAY_TYPE_INFO, new char[] {'a', 'é'});
        dump("BASIC_STRINGS", BasicArrayTypeInfo.STRING_ARRAY_TYPE_INFO, (Object) new String[] {"a", null});
        dump("BASIC_LONGS", BasicArrayTypeInfo.LONG_ARRAY_TYPE_INFO, (Object) new Long[] {1L, null});
        dump("BASIC_CHARS", BasicArrayTypeInfo.CHAR_ARRAY_TYPE_INFO, (Object) new Character[] {'é'});
        dump("OBJECT_ROWS", ObjectArrayTypeInfo.getInfoFor(Row[].class, Types.ROW(Types.LONG)),
            (Object) new Row[] {Row.of(1L), null});
        dump("OBJECT_TUPLES", ObjectArrayTypeInfo.getInfoFor(Types.TUPLE(Types.LONG)));
        dump("OBJECT_BASIC", ObjectArrayTypeInfo.getInfoFor(BasicArrayTypeInfo.LONG_ARRAY_TYPE_INFO));
        dump("OBJECT_LONGS",
            ObjectArrayTypeInfo.getInfoFor(PrimitiveArrayTypeInfo.LONG_PRIMITIVE_ARRAY_TYPE_INFO));
        dump("OBJECT_MAPS", ObjectArrayTypeInfo.getInfoFor(Types.MAP(Types.LONG, Types.LONG)));
        dump("OBJECT_LISTS", ObjectArrayTypeInfo.getInfoFor(Types.LIST(Types.LONG)));
        dump("LIST", Types.LIST(Types.LONG), Arrays.asList(1L, 2L));
        Map<String, Long> map = new LinkedHashMap<>();
        map.put("a", 1L);
        map.put("b", null);
        dump("MAP", Types.MAP(Types.STRING, Types.LONG), map);
        dump("TUPLE", Types.TUPLE(Types.STRING, Types.LONG), Tuple2.of("a", 1L));
        dump("TUPLE_OF_NUMBERS", Types.TUPLE(Types.LONG, Types.INT), Tuple2.of(1L, 2));
        dump("ROW", Types.ROW(Types.STRING, Types.LONG), Row.of("a", 1L), Row.ofKind(RowKind.DELETE, "a", null),
            Row.ofKind(RowKind.UPDATE_BEFORE, null, 1L), Row.ofKind(RowKind.UPDATE_AFTER, null, null));
        TypeInformation seven = Types.ROW(Types.LONG, Types.LONG, Types.LONG, Types.LONG, Types.LONG, Types.LONG,
            Types.LONG);
        dump("ROW_OF_7", seven, Row.of(1L, null, 3L, null, 5L, null, 7L));
        dump("ENUM", Types.ENUM(Color.class), Color.BLUE);
        dump("NULLABLE", NullableSerializer.wrap(LongSerializer.INSTANCE, true), 5L, null);
        dump("NULLABLE_UNPADDED", NullableSerializer.wrap(LongSerializer.INSTANCE, false), 5L, null);
        dump("TTL", new TtlStateFactory.TtlSerializer(LongSerializer.INSTANCE, StringSerializer.INSTANCE),
            new TtlValue("a", 7L));
        dump("TIMER", new TimerSerializer(LongSerializer.INSTANCE, StringSerializer.INSTANCE),
            new TimerHeapInternalTimer(999999L, 5L, "ns"), new TimerHeapInternalTimer(-1L, 5L, ""));
        dump("VOID_NAMESPACE", VoidNamespaceSerializer.INSTANCE, VoidNamespace.INSTANCE);
        dump("TIME_WINDOW", new TimeWindow.Serializer(), new TimeWindow(1, 2));
        dump("GLOBAL_WINDOW", new GlobalWindow.Serializer(), GlobalWindow.get());
        dump("TABLE_TIME_WINDOW", new org.apache.flink.table.runtime.operators.window.TimeWindow.Serializer(),
            new org.apache.flink.table.runtime.operators.window.TimeWindow(1, 2));
        dump("COUNT_WINDOW", new org.apache.flink.table.runtime.operators.window.CountWindow.Serializer(),
            new org.apache.flink.table.runtime.operators.window.CountWindow(1));
        dump("WRAPPED_BYTES", new ByteArrayWrapperSerializer(), new ByteArrayWrapper(new byte[] {1, 2}));
        Person person = new Person();
        person.id = 1;
        person.scores = Arrays.asList(3L);
        Employee employee = new Employee();
        employee.name = "n";
        employee.salary = 9;
        Worker worker = new Worker();
        worker.hours = 8;
        CONFIG.registerPojoType(Employee.class);
        dump("POJO", Types.POJO(Person.class), person, employee, worker, null);
        dump("KRYO", new GenericTypeInfo(Unknown.class), new Unknown(1));
        dump("EITHER", new EitherTypeInfo(Types.LONG, Types.STRING), Either.Left(1L));
        dump("EITHER_OF_KRYO", new EitherTypeInfo(Types.LONG, new GenericTypeInfo(Unknown.class)));
        dump("ROW_OF_KRYO", Types.ROW(new GenericTypeInfo(Unknown.class), Types.LONG));
    }
}
