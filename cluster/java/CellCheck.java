import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.PrivilegedExceptionAction;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hbase.HBaseConfiguration;
import org.apache.hadoop.hbase.TableExistsException;
import org.apache.hadoop.hbase.TableName;
import org.apache.hadoop.hbase.client.Admin;
import org.apache.hadoop.hbase.client.ColumnFamilyDescriptorBuilder;
import org.apache.hadoop.hbase.client.Connection;
import org.apache.hadoop.hbase.client.ConnectionFactory;
import org.apache.hadoop.hbase.client.Get;
import org.apache.hadoop.hbase.client.Put;
import org.apache.hadoop.hbase.client.Table;
import org.apache.hadoop.hbase.client.TableDescriptorBuilder;
import org.apache.hadoop.security.Credentials;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * Puts and gets a cell with each of several configurations of a client, to show whom the servers serve.
 *
 * <p>Arguments: {@code login file case...}. The login is a principal, and the file its keytab; or {@code token}
 * and a credentials file of Hadoop; or {@code - -}, nobody. A case is {@code name=value;name=value}, properties
 * that replace those of hbase-site.xml. Prints {@code ok}, or {@code refused} and the last cause, in a line for
 * each case.
 */
final class CellCheck {
    private static final TableName TABLE = TableName.valueOf("check");
    private static final byte[] FAMILY = {'f'};
    private static final byte[] QUALIFIER = {'q'};
    private static final int LIMIT_SECONDS = 90;

    private CellCheck() {}

    public static void main(String[] arguments) throws Exception {
        Configuration site = HBaseConfiguration.create();
        UserGroupInformation user = login(site, arguments[0], arguments[1]);
        for (int i = 2; i < arguments.length; i++) {
            System.out.println(outcome(user, site, arguments[i]));
        }
        // Threads of a client that was refused may still retry.
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static UserGroupInformation login(Configuration site, String login, String file) throws IOException {
        if (login.equals("-")) {
            site.set("hadoop.security.authentication", "simple");
        }
        UserGroupInformation.setConfiguration(site);
        switch (login) {
            case "-":
                return UserGroupInformation.getCurrentUser();
            case "token":
                UserGroupInformation user = UserGroupInformation.createRemoteUser("somebody");
                user.addCredentials(Credentials.readTokenStorageFile(new File(file), site));
                return user;
            default:
                UserGroupInformation.loginUserFromKeytab(login, file);
                return UserGroupInformation.getLoginUser();
        }
    }

    private static String outcome(UserGroupInformation user, Configuration site, String properties) {
        Configuration configuration = new Configuration(site);
        configuration.setInt("hbase.client.retries.number", 2);
        configuration.setInt("hbase.client.operation.timeout", 30_000);
        configuration.setInt("hbase.client.meta.operation.timeout", 30_000);
        configuration.setInt("hbase.rpc.timeout", 10_000);
        configuration.setInt("zookeeper.recovery.retry", 1);
        configuration.setInt("zookeeper.session.timeout", 10_000);
        // A server that refused is asked again, so that the last cause is its own.
        configuration.setInt("hbase.ipc.client.failed.servers.expiry", 1);
        for (String property : properties.split(";")) {
            int equals = property.indexOf('=');
            if (equals > 0) {
                configuration.set(property.substring(0, equals), property.substring(equals + 1));
            }
        }
        CompletableFuture<Void> work = CompletableFuture.runAsync(() -> {
            try {
                user.doAs((PrivilegedExceptionAction<Void>) () -> {
                    putAndGet(configuration);
                    return null;
                });
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        try {
            work.get(LIMIT_SECONDS, TimeUnit.SECONDS);
            return "ok";
        } catch (TimeoutException e) {
            return "refused no outcome after " + LIMIT_SECONDS + " s";
        } catch (InterruptedException | ExecutionException e) {
            Throwable cause = e;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            return "refused " + cause.toString().replace('\n', ' ');
        }
    }

    private static void putAndGet(Configuration configuration) throws Exception {
        byte[] value = Long.toHexString(System.nanoTime()).getBytes(StandardCharsets.UTF_8);
        try (Connection connection = ConnectionFactory.createConnection(configuration)) {
            try (Admin admin = connection.getAdmin()) {
                if (!admin.tableExists(TABLE)) {
                    admin.createTable(TableDescriptorBuilder.newBuilder(TABLE)
                        .setColumnFamily(ColumnFamilyDescriptorBuilder.of(FAMILY))
                        .build());
                }
            } catch (TableExistsException e) {
                // A case before created it.
            }
            try (Table table = connection.getTable(TABLE)) {
                table.put(new Put(value).addColumn(FAMILY, QUALIFIER, value));
                byte[] read = table.get(new Get(value)).getValue(FAMILY, QUALIFIER);
                if (!Arrays.equals(read, value)) {
                    throw new IllegalStateException("the cell has another value");
                }
            }
        }
    }
}
