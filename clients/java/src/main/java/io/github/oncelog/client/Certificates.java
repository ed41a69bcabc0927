package io.github.oncelog.client;

import java.io.ByteArrayInputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.Collection;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;
import javax.net.ssl.X509ExtendedKeyManager;
import javax.net.ssl.X509ExtendedTrustManager;

/**
 * Certificates and keys in PEM files, for handshakes, each with the files' content of that time.
 */
final class Certificates {
  private static final Pattern KEY =
      Pattern.compile("-----BEGIN PRIVATE KEY-----(.*?)-----END PRIVATE KEY-----", Pattern.DOTALL);
  private static final List<String> KEY_KINDS = List.of("EC", "RSA", "Ed25519");

  private Certificates() {}

  static X509Certificate[] certificates(String setting, Path path) {
    byte[] pem = Security.read(setting, path);
    try {
      Collection<? extends Certificate> found =
          CertificateFactory.getInstance("X.509")
              .generateCertificates(new ByteArrayInputStream(pem));
      if (!found.isEmpty()) {
        return found.toArray(new X509Certificate[0]);
      }
    } catch (CertificateException e) {
      // the same as none
    }
    throw Limits.bad("%s: %s holds no certificate in PEM", setting, path);
  }

  static PrivateKey key(String setting, Path path) {
    String pem = new String(Security.read(setting, path), StandardCharsets.ISO_8859_1);
    Matcher found = KEY.matcher(pem);
    if (found.find()) {
      byte[] der = Base64.getMimeDecoder().decode(found.group(1));
      for (String kind : KEY_KINDS) {
        try {
          return KeyFactory.getInstance(kind).generatePrivate(new PKCS8EncodedKeySpec(der));
        } catch (GeneralSecurityException e) {
          // of another kind
        }
      }
    }
    throw Limits.bad("%s: %s holds no private key in PEM, PKCS #8", setting, path);
  }

  /** The authorities of the nodes. */
  static final class Authorities extends X509ExtendedTrustManager {
    private final Security.Held<X509ExtendedTrustManager> file;

    Authorities(Path path) {
      file = new Security.Held<>(List.of("tlsCaFile"), List.of(path), () -> read(path));
    }

    private static X509ExtendedTrustManager read(Path path) {
      try {
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        X509Certificate[] all = certificates("tlsCaFile", path);
        for (int i = 0; i < all.length; i++) {
          store.setCertificateEntry("authority-" + i, all[i]);
        }
        TrustManagerFactory factory =
            TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        for (TrustManager manager : factory.getTrustManagers()) {
          if (manager instanceof X509ExtendedTrustManager extended) {
            return extended; // which compares the node's name, too
          }
        }
        throw new GeneralSecurityException("no trust manager for X.509");
      } catch (GeneralSecurityException | java.io.IOException e) {
        throw Limits.bad("tlsCaFile: %s: %s", path, e);
      }
    }

    private X509ExtendedTrustManager current() throws CertificateException {
      try {
        return file.current();
      } catch (OncelogException e) {
        throw new CertificateException(e); // between two files: it is tried again
      }
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind, SSLEngine engine)
        throws CertificateException {
      current().checkServerTrusted(chain, kind, engine);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind, Socket socket)
        throws CertificateException {
      current().checkServerTrusted(chain, kind, socket);
    }

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String kind)
        throws CertificateException {
      throw new CertificateException("whose certificate it is cannot be checked");
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind, SSLEngine engine)
        throws CertificateException {
      throw new CertificateException("a client takes no connections");
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind, Socket socket)
        throws CertificateException {
      throw new CertificateException("a client takes no connections");
    }

    @Override
    public void checkClientTrusted(X509Certificate[] chain, String kind)
        throws CertificateException {
      throw new CertificateException("a client takes no connections");
    }

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return file.current().getAcceptedIssuers();
    }
  }

  /** This client's certificate and its key. */
  static final class Own extends X509ExtendedKeyManager {
    private record Pair(X509Certificate[] chain, PrivateKey key) {}

    private static final String ALIAS = "own";

    private final Security.Held<Pair> files;

    Own(Path chain, Path key) {
      files =
          new Security.Held<>(
              List.of("tlsCertFile", "tlsKeyFile"),
              List.of(chain, key),
              () ->
                  new Pair(
                      certificates("tlsCertFile", chain), Certificates.key("tlsKeyFile", key)));
    }

    @Override
    public String chooseEngineClientAlias(String[] kinds, Principal[] issuers, SSLEngine engine) {
      return ALIAS;
    }

    @Override
    public String chooseClientAlias(String[] kinds, Principal[] issuers, Socket socket) {
      return ALIAS;
    }

    @Override
    public X509Certificate[] getCertificateChain(String alias) {
      return files.current().chain;
    }

    @Override
    public PrivateKey getPrivateKey(String alias) {
      return files.current().key;
    }

    @Override
    public String[] getClientAliases(String kind, Principal[] issuers) {
      return new String[] {ALIAS};
    }

    @Override
    public String[] getServerAliases(String kind, Principal[] issuers) {
      return null;
    }

    @Override
    public String chooseServerAlias(String kind, Principal[] issuers, Socket socket) {
      return null;
    }
  }
}
