// One payment in one transaction, from JDBC.
import java.math.BigDecimal;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;

public class Pay {
    static final String CLAIM =
        "SELECT outcome, result FROM idem_claim(?, 'pay', ?, request => ?::jsonb, wait => '2 seconds')";
    static final String COMPLETE = "SELECT idem_complete(?, 'pay', ?, result => ?::jsonb, status => 201)";

    /** The outcome of the operation, with its result where there is one. */
    static String pay(Connection connection, String account, String key, BigDecimal amount) throws SQLException {
        connection.setAutoCommit(false);
        try {
            String outcome;
            String result;
            try (PreparedStatement claim = connection.prepareStatement(CLAIM)) {
                claim.setString(1, account);
                claim.setString(2, key);
                claim.setString(3, "{\"amount\": " + amount.toPlainString() + "}");
                try (ResultSet row = claim.executeQuery()) {
                    row.next();
                    outcome = row.getString("outcome");
                    result = row.getString("result");
                }
            }
            if (outcome.equals("claimed") || outcome.equals("recovered")) {
                try (PreparedStatement insert =
                         connection.prepareStatement("INSERT INTO payments (account, amount) VALUES (?, ?) RETURNING id")) {
                    insert.setString(1, account);
                    insert.setBigDecimal(2, amount);
                    try (ResultSet row = insert.executeQuery()) {
                        row.next();
                        result = "{\"payment\": " + row.getLong(1) + "}";
                    }
                }
                try (PreparedStatement complete = connection.prepareStatement(COMPLETE)) {
                    complete.setString(1, account);
                    complete.setString(2, key);
                    complete.setString(3, result);
                    complete.executeQuery().close();
                }
            }
            connection.commit();
            return result == null ? outcome : outcome + " " + result;
        } catch (SQLException | RuntimeException error) {
            connection.rollback();
            throw error;
        }
    }

    public static void main(String[] arguments) throws SQLException {
        try (Connection connection = DriverManager.getConnection(arguments[0])) {
            System.out.println(pay(connection, "acme", "k1", new BigDecimal("10")));
            System.out.println(pay(connection, "acme", "k1", new BigDecimal("10")));
        }
    }
}
