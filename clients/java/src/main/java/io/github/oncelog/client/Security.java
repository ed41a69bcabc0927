package io.github.oncelog.client;

import io.grpc.CallCredentials;
import io.grpc.ChannelCredentials;
import io.grpc.CompositeChannelCredentials;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.TlsChannelCredentials;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executor;
import java.util.regex.Pattern;

/**
 * How a client speaks with nodes, and its proof to them. Files are read again when they have
 * changed: certificates with the next handshake, a token with the next call.
 */
final class Security {
  private static final int MAX_FILE_BYTES = 1 << 20;

  private Security() {}

  /** Credentials by a client's settings; throws INVALID_CONFIG for files that are of no use. */
  static ChannelCredentials credentials(ClientConfig<?> config) {
    if (!config.secured()) {
      return InsecureChannelCredentials.create();
    }
    TlsChannelCredentials.Builder tls = TlsChannelCredentials.newBuilder();
    if (config.tlsCaFile() != null) {
      tls.trustManager(new Certificates.Authorities(config.tlsCaFile()));
    }
    if (config.tlsCertFile() != null) {
      tls.keyManager(new Certificates.Own(config.tlsCertFile(), config.tlsKeyFile()));
    }
    ChannelCredentials credentials = tls.build();
    if (config.tokenFile() != null) {
      return CompositeChannelCredentials.create(credentials, new Token(config.tokenFile()));
    }
    if (config.token() != null) {
      return CompositeChannelCredentials.create(credentials, new Token(config.token()));
    }
    return credentials;
  }

  /** Content of a file, and its time; made anew when it changes. */
  record Stamp(Object key, long size, long modified) {
    static Stamp of(String setting, Path path) {
      try {
        BasicFileAttributes found = Files.readAttributes(path, BasicFileAttributes.class);
        long modified = found.lastModifiedTime().toInstant().toEpochMilli();
        return new Stamp(found.fileKey(), found.size(), modified);
      } catch (IOException e) {
        throw Limits.bad("%s: %s cannot be read: %s", setting, path, e);
      }
    }
  }

  /** Something made of files, as they are now. */
  static final class Held<T> {
    /** Reads the files; throws INVALID_CONFIG. */
    interface Reader<T> {
      T read();
    }

    private final List<String> settings;
    private final List<Path> paths;
    private final Reader<T> reader;
    private List<Stamp> stamps;
    private T value;

    Held(List<String> settings, List<Path> paths, Reader<T> reader) {
      this.settings = settings;
      this.paths = paths;
      this.reader = reader;
      current();
    }

    synchronized T current() {
      List<Stamp> now = new ArrayList<>();
      for (int i = 0; i < paths.size(); i++) {
        now.add(Stamp.of(settings.get(i), paths.get(i)));
      }
      if (!now.equals(stamps)) {
        value = reader.read();
        stamps = now;
      }
      return value;
    }
  }

  static byte[] read(String setting, Path path) {
    try {
      long size = Files.size(path);
      if (size == 0 || size > MAX_FILE_BYTES) {
        throw Limits.bad("%s: %s has %d bytes", setting, path, size);
      }
      return Files.readAllBytes(path);
    } catch (IOException e) {
      throw Limits.bad("%s: %s cannot be read: %s", setting, path, e);
    }
  }

  /** A token, which goes with each call, over TLS only. */
  static final class Token extends CallCredentials {
    private static final Metadata.Key<String> AUTHORIZATION =
        Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
    private static final Pattern PRINTABLE = Pattern.compile("[!-~]+");

    private final String value;
    private final Held<String> file;

    Token(String value) {
      this.value = checked("token", "the setting", value);
      file = null;
    }

    Token(Path path) {
      value = null;
      file = new Held<>(List.of("tokenFile"), List.of(path), () -> read(path));
    }

    private static String read(Path path) {
      String text =
          new String(Security.read("tokenFile", path), java.nio.charset.StandardCharsets.UTF_8);
      return checked("tokenFile", path, text.strip());
    }

    private static String checked(String setting, Object where, String token) {
      if (!PRINTABLE.matcher(token).matches()) {
        throw Limits.bad("%s: %s holds no token", setting, where);
      }
      return token;
    }

    String current() {
      return file == null ? value : file.current();
    }

    @Override
    public void applyRequestMetadata(RequestInfo info, Executor executor, MetadataApplier applier) {
      Metadata metadata = new Metadata();
      try {
        metadata.put(AUTHORIZATION, "Bearer " + current());
      } catch (OncelogException e) {
        // Between two files, most likely: it is tried again.
        applier.fail(Status.UNAVAILABLE.withDescription(e.getMessage()));
        return;
      }
      applier.apply(metadata);
    }
  }
}
