import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.BufferedMutator;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;

/**
 * Writes small lists of puts from many threads.
 *
 * <p>Request: {@code table series first_step steps threads points way}. {@code way} is {@code mutator} or
 * {@code put}. With {@code mutator} all threads share a BufferedMutator with its defaults, so a list is
 * not durable when the call returns. With {@code put} they call {@code Table.put(List)}, which returns
 * when HBase has the list. Returns the seconds from the first list until everything is acknowledged,
 * then median and 99th percentile of the calls in microseconds.
 */
final class SmallWritesLoad extends BenchProgram {
    /** A prime that does not divide the number of series. */
    private static final int SCATTER = 7_919;

    /** Writes one list. */
    private interface Writer {
        void write(List<Put> puts) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        new SmallWritesLoad().serve(arguments);
    }

    @Override
    String run(Connection connection, String[] fields) throws Exception {
        TableName table = TableName.valueOf(fields[0]);
        int series = number(fields[1]);
        int first = number(fields[2]);
        int end = first + number(fields[3]);
        int threads = number(fields[4]);
        int points = number(fields[5]);
        ExecutorService pool = Executors.newFixedThreadPool(threads);
        List<Callable<long[]>> parts = new ArrayList<>();
        long start = System.nanoTime();
        List<long[]> times = new ArrayList<>();
        if (fields[6].equals("mutator")) {
            try (BufferedMutator mutator = connection.getBufferedMutator(table)) {
                for (int i = 0; i < threads; i++) {
                    int part = i;
                    parts.add(() -> write(mutator::mutate, part, threads, series, first, end, points));
                }
                collect(pool, parts, times);
                // Closing waits for pending writes, and throws if a write was lost.
            }
        } else {
            for (int i = 0; i < threads; i++) {
                int part = i;
                parts.add(() -> {
                    try (Table puts = connection.getTable(table)) {
                        return write(puts::put, part, threads, series, first, end, points);
                    }
                });
            }
            collect(pool, parts, times);
        }
        String seconds = seconds(System.nanoTime() - start);
        pool.shutdown();
        long[] sorted = times.stream().flatMapToLong(Arrays::stream).sorted().toArray();
        long median = sorted[sorted.length / 2] / 1000;
        long high = sorted[(int) (sorted.length * 0.99)] / 1000;
        return seconds + " " + median + " " + high;
    }

    private static void collect(ExecutorService pool, List<Callable<long[]>> parts, List<long[]> times)
            throws Exception {
        for (Future<long[]> done : pool.invokeAll(parts)) {
            times.add(done.get());
        }
    }

    /**
     * Writes every {@code parts}-th series, step by step, in lists. Returns the nanoseconds of each call.
     * The order of the series resembles hashed salts, so the series of a list are in all regions.
     */
    private static long[] write(
            Writer writer, int part, int parts, int series, int first, int end, int points)
            throws Exception {
        int all = (series - part + parts - 1) / parts * (end - first);
        long[] times = new long[(all + points - 1) / points];
        int calls = 0;
        List<Put> puts = new ArrayList<>(points);
        for (int step = first; step < end; step++) {
            for (int each = part; each < series; each += parts) {
                int scattered = (int) ((long) each * SCATTER % series);
                Put put = new Put(row(scattered, step));
                put.addColumn(FAMILY, qualifier(step), timestamp(step), value(scattered, step));
                puts.add(put);
                if (puts.size() == points) {
                    long begun = System.nanoTime();
                    writer.write(puts);
                    times[calls++] = System.nanoTime() - begun;
                    puts = new ArrayList<>(points);
                }
            }
        }
        if (!puts.isEmpty()) {
            long begun = System.nanoTime();
            writer.write(puts);
            times[calls++] = System.nanoTime() - begun;
        }
        return Arrays.copyOf(times, calls);
    }
}
