// Prints the snapshots of Avro's serializer and the bytes of records, as DumpSerializers.java does.
//
// It wrote avro_serializers.txt, with flink-avro 2.2.1 and Avro 1.11.4 on the class path beside Flink:
//     java -cp "lib/*" DumpAvro.java > ../avro_serializers.txt

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Collections;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.core.memory.DataOutputSerializer;
import org.apache.flink.formats.avro.typeutils.AvroSerializer;

public class DumpAvro {
    static final String ORDER =
        "{'type':'record','name':'Order','namespace':'org','fields':["
            + "{'name':'id','type':'long'},"
            + "{'name':'name','type':['null','string']},"
            + "{'name':'tags','type':{'type':'array','items':'string'}},"
            + "{'name':'counts','type':{'type':'map','values':'int'}},"
            + "{'name':'kind','type':{'type':'enum','name':'Kind','symbols':['A','B']}},"
            + "{'name':'sum','type':'double'},"
            + "{'name':'rate','type':'float'},"
            + "{'name':'ok','type':'boolean'},"
            + "{'name':'raw','type':'bytes'},"
            + "{'name':'hash','type':{'type':'fixed','name':'Hash','size':2}},"
            + "{'name':'from','type':[{'type':'record','name':'Point','fields':[{'name':'x','type':'int'}]},'null']},"
            + "{'name':'to','type':'Point'}]}";
    static final String UNION =
        "{'type':'record','name':'Choice','fields':[{'name':'either','type':['int','string']}]}";
    static final String RECURSIVE =
        "{'type':'record','name':'Node','fields':[{'name':'next','type':['null','Node']}]}";

    static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte one : bytes) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }

    static void dump(String name, Schema schema, GenericRecord... records) throws Exception {
        AvroSerializer<GenericRecord> serializer = new AvroSerializer<>(GenericRecord.class, schema);
        DataOutputSerializer snapshot = new DataOutputSerializer(100);
        TypeSerializerSnapshot.writeVersionedSnapshot(snapshot, serializer.snapshotConfiguration());
        System.out.println(name + " " + serializer.getLength() + " " + hex(snapshot.getCopyOfBuffer()));
        for (GenericRecord record : records) {
            DataOutputSerializer out = new DataOutputSerializer(100);
            serializer.serialize(record, out);
            System.out.println("- " + hex(out.getCopyOfBuffer()));
        }
    }

    static Schema parsed(String schema) {
        return new Schema.Parser().parse(schema.replace('\'', '"'));
    }

    static GenericRecord order(Schema schema, boolean isFull) {
        GenericRecord point = new GenericData.Record(schema.getField("to").schema());
        point.put("x", -3);
        GenericRecord order = new GenericData.Record(schema);
        order.put("id", isFull ? 1234567890123L : -1L);
        order.put("name", isFull ? "né" : null);
        order.put("tags", isFull ? Arrays.asList("a", "b") : Collections.emptyList());
        order.put("counts", isFull ? Collections.singletonMap("k", 5) : Collections.emptyMap());
        order.put("kind", new GenericData.EnumSymbol(schema.getField("kind").schema(), "B"));
        order.put("sum", 1.5);
        order.put("rate", -0.25f);
        order.put("ok", isFull);
        order.put("raw", ByteBuffer.wrap(new byte[] {1, 2, 3}));
        order.put("hash", new GenericData.Fixed(schema.getField("hash").schema(), new byte[] {7, 8}));
        order.put("from", isFull ? point : null);
        order.put("to", point);
        return order;
    }

    public static void main(String[] arguments) throws Exception {
        Schema order = parsed(ORDER);
        dump("AVRO", order, order(order, true), order(order, false));
        dump("AVRO_UNION", parsed(UNION));
        dump("AVRO_RECURSIVE", parsed(RECURSIVE));
    }
}
