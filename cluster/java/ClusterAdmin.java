import java.io.IOException;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.HRegionLocation;
import org.apache.hadoop.hbase.ServerName;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.RegionLocator;
import org.apache.hadoop.hbase.security.User;
import org.apache.hadoop.hbase.security.access.Permission;
import org.apache.hadoop.hbase.security.access.UserPermission;
import org.apache.hadoop.hbase.security.token.ClientTokenUtil;
import org.apache.hadoop.hbase.util.Bytes;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * Operations of a secured cluster as a user with a keytab.
 *
 * <p>Arguments: {@code principal keytab}, then one of {@code grant user rights [table...]}, letters of RWXCA, on
 * everything or on tables; {@code token file}, a delegation token into a credentials file of Hadoop; {@code move table row server},
 * the region of a row, in hexadecimal digits, to a region server.
 */
final class ClusterAdmin {
    private static final int MOVE_LIMIT_MS = 120_000;
    private static final int POLL_MS = 100;

    private ClusterAdmin() {}

    public static void main(String[] arguments) throws Exception {
        Configuration configuration = HBaseConfiguration.create();
        UserGroupInformation.setConfiguration(configuration);
        UserGroupInformation.loginUserFromKeytab(arguments[0], arguments[1]);
        String[] rest = Arrays.copyOfRange(arguments, 3, arguments.length);
        try (Connection connection = ConnectionFactory.createConnection(configuration)) {
            switch (arguments[2]) {
                case "grant":
                    grant(connection, rest);
                    break;
                case "token":
                    token(connection, rest[0]);
                    break;
                case "move":
                    move(connection, TableName.valueOf(rest[0]), Bytes.fromHex(rest[1]), rest[2]);
                    break;
                default:
                    throw new IllegalArgumentException(arguments[2]);
            }
        }
    }

    private static void grant(Connection connection, String[] arguments) throws IOException {
        String user = arguments[0];
        byte[] rights = Bytes.toBytes(arguments[1]);
        try (Admin admin = connection.getAdmin()) {
            if (arguments.length == 2) {
                Permission all = Permission.newBuilder().withActionCodes(rights).build();
                admin.grant(new UserPermission(user, all), false);
            }
            for (String table : Arrays.asList(arguments).subList(2, arguments.length)) {
                Permission of = Permission.newBuilder(TableName.valueOf(table)).withActionCodes(rights).build();
                admin.grant(new UserPermission(user, of), false);
            }
        }
    }

    private static void token(Connection connection, String file) throws Exception {
        User user = User.getCurrent();
        // The only function that is public in all versions; the token is among the credentials then.
        ClientTokenUtil.obtainAndCacheToken(connection, user);
        Credentials credentials = user.getUGI().getCredentials();
        credentials.writeTokenStorageFile(new Path("file://" + file), connection.getConfiguration());
    }

    private static void move(Connection connection, TableName table, byte[] row, String name)
            throws Exception {
        ServerName server = ServerName.valueOf(name);
        try (Admin admin = connection.getAdmin(); RegionLocator locator = connection.getRegionLocator(table)) {
            byte[] region = locator.getRegionLocation(row, true).getRegion().getEncodedNameAsBytes();
            admin.move(region, server);
            long end = System.currentTimeMillis() + MOVE_LIMIT_MS;
            for (HRegionLocation at = locator.getRegionLocation(row, true);
                    !server.equals(at.getServerName());
                    at = locator.getRegionLocation(row, true)) {
                if (System.currentTimeMillis() > end) {
                    throw new IOException("the region is on " + at.getServerName());
                }
                Thread.sleep(POLL_MS);
            }
        }
    }
}
