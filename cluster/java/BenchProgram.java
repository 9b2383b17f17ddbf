import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;

/**
 * Base of the programs that are compared with the native client. It makes the cells of the load, with the
 * same bytes as benches/hbase/cells.rs. It reads requests line by line, so that one virtual machine runs
 * over all rounds.
 */
abstract class BenchProgram {
    static final byte[] FAMILY = {'t'};
    /** Seconds between two points of a series. */
    static final int STEP_SECONDS = 10;
    /** The start of an hour, so long ago that row compaction is due. */
    static final int FIRST_SECOND = 1_599_998_400;
    /** Values of the first byte of a row; each has a region. */
    static final int BUCKETS = 8;
    static final int ROW_LENGTH = 20;
    /** Flags of a four-byte integer. */
    private static final int FLAGS = 3;

    /** Runs one request and returns its result as text. */
    abstract String run(Connection connection, String[] fields) throws Exception;

    /** Runs requests until the end of the input. */
    void serve(String[] arguments) throws Exception {
        Configuration configuration = HBaseConfiguration.create();
        String[] quorum = arguments[0].split(":");
        configuration.set("hbase.zookeeper.quorum", quorum[0]);
        configuration.set("hbase.zookeeper.property.clientPort", quorum[1]);
        for (int i = 1; i + 1 < arguments.length; i += 2) {
            configuration.set(arguments[i], arguments[i + 1]);
        }
        try (Connection connection = ConnectionFactory.createConnection(configuration)) {
            BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String request = requests.readLine(); request != null; request = requests.readLine()) {
                System.out.println("done " + run(connection, request.split(" ")));
                System.out.flush();
            }
        }
    }

    static byte[] row(int series, int step) {
        int second = FIRST_SECOND + step * STEP_SECONDS;
        byte[] row = new byte[ROW_LENGTH];
        row[0] = (byte) (series % BUCKETS);
        row[3] = 1;
        putInt(row, 4, second - second % 3600);
        row[10] = 1;
        putInt24(row, 11, series + 1);
        row[16] = 2;
        putInt24(row, 17, series % 16 + 1);
        return row;
    }

    static byte[] qualifier(int step) {
        int second = FIRST_SECOND + step * STEP_SECONDS;
        int code = second % 3600 << 4 | FLAGS;
        return new byte[] {(byte) (code >> 8), (byte) code};
    }

    static long timestamp(int step) {
        return (FIRST_SECOND + (long) step * STEP_SECONDS) * 1000;
    }

    static byte[] value(int series, int step) {
        byte[] value = new byte[4];
        putInt(value, 0, number(series, step));
        return value;
    }

    static int number(int series, int step) {
        long mixed = ((long) series << 32 | step) * 0x9e3779b97f4a7c15L;
        mixed = (mixed ^ mixed >>> 29) * 0xbf58476d1ce4e5b9L;
        return (int) (mixed >>> 33);
    }

    private static void putInt(byte[] bytes, int at, int number) {
        bytes[at] = (byte) (number >> 24);
        putInt24(bytes, at + 1, number);
    }

    private static void putInt24(byte[] bytes, int at, int number) {
        bytes[at] = (byte) (number >> 16);
        bytes[at + 1] = (byte) (number >> 8);
        bytes[at + 2] = (byte) number;
    }

    static String seconds(long nanoseconds) {
        return String.format(Locale.ROOT, "%.6f", nanoseconds / 1e9);
    }

    static int number(String word) throws IOException {
        try {
            return Integer.parseInt(word);
        } catch (NumberFormatException error) {
            throw new IOException("not a number: " + word, error);
        }
    }
}
