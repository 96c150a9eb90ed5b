import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.net.URI;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.HTTPRequest;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.apache.iceberg.rest.RESTResponse;
import org.apache.iceberg.rest.credentials.ImmutableCredential;
import org.apache.iceberg.rest.responses.ErrorResponse;
import org.apache.iceberg.rest.responses.LoadTableResponse;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.sts.StsClient;
import software.amazon.awssdk.services.sts.model.Credentials;

/**
 * The Iceberg project's own REST catalog of its tests, on 127.0.0.1 and a free port: the project's
 * launcher listens on all interfaces. Reads the catalog's properties from standard input, one
 * key=value a line up to an empty line, prints the port, and ends when standard input does. With
 * the property vend=true it gives temporary keys with each table, as the project's own doesn't.
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
    boolean vend = "true".equals(properties.remove("vend"));
    Catalog catalog = CatalogUtil.buildIcebergCatalog("firn", properties, null);

    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    server.addConnector(connector);
    ServletContextHandler context = new ServletContextHandler();
    RESTCatalogAdapter adapter =
        vend ? new Vending(catalog, properties) : new RESTCatalogAdapter(catalog);
    context.addServlet(new ServletHolder(new RESTCatalogServlet(adapter)), "/*");
    server.setHandler(context);
    server.start();
    System.out.println(connector.getLocalPort());

    while (in.readLine() != null) {}
    server.stop();
    System.exit(0);
  }

  /** Gives keys of the store's STS with each table that is loaded, good below its location. */
  private static final class Vending extends RESTCatalogAdapter {
    private final Map<String, String> store;
    private final StsClient sts;

    Vending(Catalog catalog, Map<String, String> store) {
      super(catalog);
      this.store = store;
      this.sts =
          StsClient.builder()
              .endpointOverride(URI.create(store.get("s3.endpoint")))
              .region(Region.of(store.get("client.region")))
              .credentialsProvider(
                  StaticCredentialsProvider.create(
                      AwsBasicCredentials.create(
                          store.get("s3.access-key-id"), store.get("s3.secret-access-key"))))
              .build();
    }

    @Override
    protected <T extends RESTResponse> T execute(
        HTTPRequest request,
        Class<T> responseType,
        Consumer<ErrorResponse> errors,
        Consumer<Map<String, String>> headers) {
      T response = super.execute(request, responseType, errors, headers);
      if (request.method() != HTTPRequest.HTTPMethod.GET || !(response instanceof LoadTableResponse)) {
        return response;
      }
      LoadTableResponse loaded = (LoadTableResponse) response;
      String location = loaded.tableMetadata().location();
      Credentials keys = assume(location.substring("s3://".length()));
      return castResponse(
          responseType,
          LoadTableResponse.builder()
              .withTableMetadata(loaded.tableMetadata())
              .addAllConfig(loaded.config())
              .addCredential(
                  ImmutableCredential.builder()
                      .prefix(location)
                      .putConfig("s3.access-key-id", keys.accessKeyId())
                      .putConfig("s3.secret-access-key", keys.secretAccessKey())
                      .putConfig("s3.session-token", keys.sessionToken())
                      .putConfig(
                          "s3.session-token-expires-at-ms",
                          String.valueOf(keys.expiration().toEpochMilli()))
                      .putConfig("s3.endpoint", store.get("s3.endpoint"))
                      .putConfig("client.region", store.get("client.region"))
                      .putConfig("s3.path-style-access", "true")
                      .build())
              .build());
    }

    private Credentials assume(String path) {
      String policy =
          "{\"Version\":\"2012-10-17\",\"Statement\":[{\"Effect\":\"Allow\",\"Action\":"
              + "[\"s3:GetObject\",\"s3:PutObject\",\"s3:AbortMultipartUpload\"],"
              + "\"Resource\":\"arn:aws:s3:::"
              + path
              + "/*\"}]}";
      return sts.assumeRole(
              r ->
                  r.roleArn("arn:aws:iam::000000000000:role/table")
                      .roleSessionName("table")
                      .durationSeconds(900)
                      .policy(policy))
          .credentials();
    }
  }
}
