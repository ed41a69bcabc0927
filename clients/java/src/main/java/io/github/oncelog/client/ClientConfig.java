package io.github.oncelog.client;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;

/**
 * The settings that all clients share. Each has a method that reads it and one that sets it and
 * returns the config. They are looked at when a client is made, and copied.
 */
public abstract class ClientConfig<T extends ClientConfig<T>> {
  private static final String DEFAULT_BOOTSTRAP = "127.0.0.1:7001";
  private List<String> bootstrapServers = List.of();
  private String clientId = "oncelog-java";
  private Duration requestTimeout = Duration.ofSeconds(10);
  private Duration retryBackoff = Duration.ofMillis(50);
  private Duration retryBackoffMax = Duration.ofSeconds(1);
  private Duration metadataMaxAge = Duration.ofMinutes(5);
  private boolean tls = false;
  private Path tlsCaFile;
  private Path tlsCertFile;
  private Path tlsKeyFile;
  private Path tokenFile;
  private String token;

  /**
   * The nodes to begin with, as host:port; others are learned from them. The default is the list in
   * the environment variable ONCELOG_BOOTSTRAP, or a node at 127.0.0.1:7001.
   */
  public List<String> bootstrapServers() {
    return bootstrapServers;
  }

  /** Sets {@link #bootstrapServers()}. */
  public T bootstrapServers(List<String> bootstrapServers) {
    this.bootstrapServers = bootstrapServers;
    return self();
  }

  /** Names the client to the nodes. */
  public String clientId() {
    return clientId;
  }

  /** Sets {@link #clientId()}. */
  public T clientId(String clientId) {
    this.clientId = clientId;
    return self();
  }

  /** How long one request may take before it is tried again elsewhere. */
  public Duration requestTimeout() {
    return requestTimeout;
  }

  /** Sets {@link #requestTimeout()}. */
  public T requestTimeout(Duration requestTimeout) {
    this.requestTimeout = requestTimeout;
    return self();
  }

  /** The first pause before a retry; it doubles up to {@link #retryBackoffMax()}. */
  public Duration retryBackoff() {
    return retryBackoff;
  }

  /** Sets {@link #retryBackoff()}. */
  public T retryBackoff(Duration retryBackoff) {
    this.retryBackoff = retryBackoff;
    return self();
  }

  /** The longest pause before a retry. */
  public Duration retryBackoffMax() {
    return retryBackoffMax;
  }

  /** Sets {@link #retryBackoffMax()}. */
  public T retryBackoffMax(Duration retryBackoffMax) {
    this.retryBackoffMax = retryBackoffMax;
    return self();
  }

  /** After how long leaders are asked for anew, without a reason. */
  public Duration metadataMaxAge() {
    return metadataMaxAge;
  }

  /** Sets {@link #metadataMaxAge()}. */
  public T metadataMaxAge(Duration metadataMaxAge) {
    this.metadataMaxAge = metadataMaxAge;
    return self();
  }

  /**
   * Speaks TLS; so does a client with a file for it. Without {@link #tlsCaFile()} the system's
   * authorities are trusted.
   */
  public boolean tls() {
    return tls;
  }

  /** Sets {@link #tls()}. */
  public T tls(boolean tls) {
    this.tls = tls;
    return self();
  }

  /**
   * The authorities of the nodes, PEM; null: none is given. Files are read again when they change.
   */
  public Path tlsCaFile() {
    return tlsCaFile;
  }

  /** Sets {@link #tlsCaFile()}. */
  public T tlsCaFile(Path tlsCaFile) {
    this.tlsCaFile = tlsCaFile;
    return self();
  }

  /** This client's certificate, PEM, or null; its key is {@link #tlsKeyFile()}. */
  public Path tlsCertFile() {
    return tlsCertFile;
  }

  /** Sets {@link #tlsCertFile()}. */
  public T tlsCertFile(Path tlsCertFile) {
    this.tlsCertFile = tlsCertFile;
    return self();
  }

  /** The key of {@link #tlsCertFile()}, PEM with PKCS #8, or null. */
  public Path tlsKeyFile() {
    return tlsKeyFile;
  }

  /** Sets {@link #tlsKeyFile()}. */
  public T tlsKeyFile(Path tlsKeyFile) {
    this.tlsKeyFile = tlsKeyFile;
    return self();
  }

  /** A file with a token with the client's identity, or null. Needs TLS. */
  public Path tokenFile() {
    return tokenFile;
  }

  /** Sets {@link #tokenFile()}. */
  public T tokenFile(Path tokenFile) {
    this.tokenFile = tokenFile;
    return self();
  }

  /** The token itself, or null. */
  public String token() {
    return token;
  }

  /** Sets {@link #token()}. */
  public T token(String token) {
    this.token = token;
    return self();
  }

  boolean secured() {
    return tls || tlsCaFile != null || tlsCertFile != null;
  }

  ClientConfig() {
    String servers = System.getenv("ONCELOG_BOOTSTRAP");
    bootstrapServers = split(servers == null || servers.isEmpty() ? DEFAULT_BOOTSTRAP : servers);
  }

  ClientConfig(String servers) {
    bootstrapServers = split(servers);
  }

  private static List<String> split(String servers) {
    return new ArrayList<>(Arrays.asList(servers.split(",")));
  }

  ClientConfig(ClientConfig<?> other) {
    bootstrapServers = List.copyOf(other.bootstrapServers);
    clientId = other.clientId;
    requestTimeout = other.requestTimeout;
    retryBackoff = other.retryBackoff;
    retryBackoffMax = other.retryBackoffMax;
    metadataMaxAge = other.metadataMaxAge;
    tls = other.tls;
    tlsCaFile = other.tlsCaFile;
    tlsCertFile = other.tlsCertFile;
    tlsKeyFile = other.tlsKeyFile;
    tokenFile = other.tokenFile;
    token = other.token;
  }

  abstract T self();

  /** Throws for settings that are out of range or contradict each other. */
  void check() {
    LinkedHashSet<String> servers = new LinkedHashSet<>();
    for (String each : bootstrapServers) {
      String address = each.strip();
      if (!address.isEmpty()) {
        checkAddress(address);
        servers.add(address);
      }
    }
    if (servers.isEmpty()) {
      throw Limits.bad("bootstrapServers is empty: name at least one node as host:port");
    }
    bootstrapServers = List.copyOf(servers);
    Limits.span("requestTimeout", requestTimeout, 1);
    Limits.span("retryBackoff", retryBackoff, 1);
    Limits.span("retryBackoffMax", retryBackoffMax, 1);
    Limits.span("metadataMaxAge", metadataMaxAge, 100);
    if (retryBackoffMax.compareTo(retryBackoff) < 0) {
      throw Limits.bad(
          "retryBackoffMax=%s is below retryBackoff=%s", retryBackoffMax, retryBackoff);
    }
    checkSecurity();
  }

  private void checkSecurity() {
    if ((tlsCertFile == null) != (tlsKeyFile == null)) {
      throw Limits.bad("tlsCertFile and tlsKeyFile belong together");
    }
    if (token != null && tokenFile != null) {
      throw Limits.bad("token contradicts tokenFile");
    }
    if ((token != null || tokenFile != null) && !secured()) {
      throw Limits.bad("a token needs TLS: in the clear everybody on the way could use it");
    }
    Security.credentials(this); // reads the files
  }

  private static void checkAddress(String address) {
    int colon = address.lastIndexOf(':');
    int port = 0;
    try {
      port = Integer.parseInt(address.substring(colon + 1));
    } catch (NumberFormatException notANumber) {
      // 0 is refused below
    }
    if (colon < 1 || port < 1 || port > 65535) {
      throw Limits.bad("bootstrapServers: \"%s\" is not host:port", address);
    }
  }
}
