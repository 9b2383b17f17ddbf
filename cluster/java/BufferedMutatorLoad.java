import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.BufferedMutatorParams;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Put;

/**
 * Writes through HBase's BufferedMutator.
 *
 * <p>Request: {@code table series first_step steps points_per_put threads buffer_bytes}. Returns the
 * seconds from the first cell until the last one is acknowledged.
 */
final class BufferedMutatorLoad extends BenchProgram {
    public static void main(String[] arguments) throws Exception {
        new BufferedMutatorLoad().serve(arguments);
    }

    @Override
    String run(Connection connection, String[] fields) throws Exception {
        TableName table = TableName.valueOf(fields[0]);
        int series = number(fields[1]);
        int first = number(fields[2]);
        int end = first + number(fields[3]);
        int pointsPerPut = number(fields[4]);
        int threads = number(fields[5]);
        long start = System.nanoTime();
        BufferedMutatorParams parameters =
            new BufferedMutatorParams(table).writeBufferSize(number(fields[6]));
        try (BufferedMutator mutator = connection.getBufferedMutator(parameters)) {
            if (threads == 1) {
                write(mutator, 0, 1, series, first, end, pointsPerPut);
            } else {
                ExecutorService pool = Executors.newFixedThreadPool(threads);
                List<Callable<Void>> parts = new ArrayList<>();
                for (int i = 0; i < threads; i++) {
                    int part = i;
                    parts.add(() -> {
                        write(mutator, part, threads, series, first, end, pointsPerPut);
                        return null;
                    });
                }
                for (Future<Void> done : pool.invokeAll(parts)) {
                    done.get();
                }
                pool.shutdown();
            }
            // Closing waits for pending writes, and throws if a write was lost.
        }
        return seconds(System.nanoTime() - start);
    }

    /** Writes every {@code parts}-th series: the next steps of all of them, then the steps after that. */
    private static void write(
            BufferedMutator mutator, int part, int parts, int series, int first, int end, int pointsPerPut)
            throws Exception {
        for (int step = first; step < end; step += pointsPerPut) {
            for (int each = part; each < series; each += parts) {
                Put put = new Put(row(each, step));
                for (int at = step; at < step + pointsPerPut; at++) {
                    put.addColumn(FAMILY, qualifier(at), timestamp(at), value(each, at));
                }
                mutator.mutate(put);
            }
        }
    }
}
