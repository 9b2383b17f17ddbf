import org.apache.hadoop.hbase.Cell;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.Result;
import org.apache.hadoop.hbase.client.ResultScanner;
import org.apache.hadoop.hbase.client.Scan;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.util.Bytes;

/**
 * Scans a whole table through HBase's scanner.
 *
 * <p>Request: {@code table rows_per_call bytes_per_call prefetch}. Returns seconds, rows, cells and the sum of
 * the values.
 */
final class ScannerLoad extends BenchProgram {
    public static void main(String[] arguments) throws Exception {
        new ScannerLoad().serve(arguments);
    }

    @Override
    String run(Connection connection, String[] fields) throws Exception {
        Scan scan = new Scan()
            .addFamily(FAMILY)
            .setCacheBlocks(false)
            .setCaching(number(fields[1]))
            .setMaxResultSize(number(fields[2]))
            .setAsyncPrefetch(fields[3].equals("true"));
        long start = System.nanoTime();
        long rows = 0;
        long cells = 0;
        long sum = 0;
        try (Table table = connection.getTable(TableName.valueOf(fields[0]));
                ResultScanner scanner = table.getScanner(scan)) {
            for (Result result : scanner) {
                rows++;
                for (Cell cell : result.rawCells()) {
                    cells++;
                    sum += Bytes.toInt(cell.getValueArray(), cell.getValueOffset());
                }
            }
        }
        return seconds(System.nanoTime() - start) + " " + rows + " " + cells + " " + sum;
    }
}
