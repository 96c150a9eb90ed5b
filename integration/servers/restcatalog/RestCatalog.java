import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;

/**
 * The Iceberg project's own REST catalog of its tests, on 127.0.0.1 and a free port: the project's
 * launcher listens on all interfaces. Reads the catalog's properties from standard input, one
 * key=value a line up to an empty line, prints the port, and ends when standard input does.
 */
public final class RestCatalog {
  public static void main(String[] args) throws Exception {
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    Map<String, String> properties = new HashMap<>();
    for (String line = in.readLine(); line != null && !line.isEmpty(); line = in.readLine()) {
      String[] pair = line.split("=", 2);
      properties.put(pair[0], pair[1]);
    }
    Catalog catalog = CatalogUtil.buildIcebergCatalog("firn", properties, null);

    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    server.addConnector(connector);
    ServletContextHandler context = new ServletContextHandler();
    context.addServlet(
        new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    server.setHandler(context);
    server.start();
    System.out.println(connector.getLocalPort());

    while (in.readLine() != null) {}
    server.stop();
    System.exit(0);
  }
}
