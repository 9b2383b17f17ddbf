import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Gets single cells all over a table.
 *
 * <p>Request: {@code table series steps gets threads}. Returns seconds, then median and 99th percentile of
 * a get in microseconds.
 */
final class GetLoad extends BenchProgram {
    public static void main(String[] arguments) throws Exception {
        new GetLoad().serve(arguments);
    }

    @Override
    String run(Connection connection, String[] fields) throws Exception {
        TableName name = TableName.valueOf(fields[0]);
        int series = number(fields[1]);
        int steps = number(fields[2]);
        int gets = number(fields[3]);
        int threads = number(fields[4]);
        long[] took = new long[gets];
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Callable<Void>> parts = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            int part = i;
            parts.add(() -> {
                try (Table table = connection.getTable(name)) {
                    for (int at = part; at < gets; at += threads) {
                        took[at] = get(table, number(at, series) % series, number(at, steps) % steps);
                    }
                }
                return null;
            });
        }
        long start = System.nanoTime();
        for (Future<Void> done : pool.invokeAll(parts)) {
            done.get();
        }
        long whole = System.nanoTime() - start;
        pool.shutdown();
        Arrays.sort(took);
        return seconds(whole) + " " + took[gets / 2] / 1000 + " " + took[gets - 1 - gets / 100] / 1000;
    }

    private static long get(Table table, int series, int step) throws IOException {
        long start = System.nanoTime();
        Get get = new Get(row(series, step)).addColumn(FAMILY, qualifier(step));
        byte[] value = table.get(get).getValue(FAMILY, qualifier(step));
        long took = System.nanoTime() - start;
        if (value == null || Bytes.toInt(value) != number(series, step)) {
            throw new IOException("wrong or missing: series " + series + " step " + step);
        }
        return took;
    }
}
