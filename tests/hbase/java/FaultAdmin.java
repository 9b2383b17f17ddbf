import java.io.IOException;
import java.util.Arrays;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.quotas.QuotaSettingsFactory;
import org.apache.hadoop.hbase.quotas.ThrottleType;

/**
 * What an administrator does in HBase's shell and the client here does not: quotas and snapshots.
 *
 * <p>Arguments: any number of {@code throttle table writes reads}, requests a second; {@code unthrottle table};
 * {@code snapshot name table}; {@code restore name table}, in place; {@code recreate name table}: drops the table and
 * clones the snapshot to its name.
 */
final class FaultAdmin {
    private FaultAdmin() {}

    public static void main(String[] arguments) throws IOException {
        Iterator<String> rest = Arrays.asList(arguments).iterator();
        try (Connection connection = ConnectionFactory.createConnection(HBaseConfiguration.create());
                Admin admin = connection.getAdmin()) {
            while (rest.hasNext()) {
                run(admin, rest.next(), rest);
            }
        }
    }

    private static void run(Admin admin, String command, Iterator<String> rest) throws IOException {
        switch (command) {
            case "throttle":
                TableName throttled = TableName.valueOf(rest.next());
                throttle(admin, throttled, ThrottleType.WRITE_NUMBER, Long.parseLong(rest.next()));
                throttle(admin, throttled, ThrottleType.READ_NUMBER, Long.parseLong(rest.next()));
                break;
            case "unthrottle":
                admin.setQuota(QuotaSettingsFactory.unthrottleTable(TableName.valueOf(rest.next())));
                break;
            case "snapshot":
                admin.snapshot(rest.next(), TableName.valueOf(rest.next()));
                break;
            case "restore": {
                String snapshot = rest.next();
                TableName table = TableName.valueOf(rest.next());
                admin.disableTable(table);
                admin.restoreSnapshot(snapshot, false);
                admin.enableTable(table);
                break;
            }
            case "recreate": {
                String snapshot = rest.next();
                TableName table = TableName.valueOf(rest.next());
                admin.disableTable(table);
                admin.deleteTable(table);
                admin.cloneSnapshot(snapshot, table);
                break;
            }
            default:
                throw new IllegalArgumentException(command);
        }
    }

    private static void throttle(Admin admin, TableName table, ThrottleType type, long limit) throws IOException {
        admin.setQuota(QuotaSettingsFactory.throttleTable(table, type, limit, TimeUnit.SECONDS));
    }
}
