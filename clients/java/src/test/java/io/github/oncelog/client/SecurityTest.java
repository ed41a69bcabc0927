package io.github.oncelog.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Settings of TLS and tokens that contradict each other, and files that change or are damaged. */
class SecurityTest {
  @TempDir Path folder;

  private static void refused(String word, AdminConfig config) {
    OncelogException error = assertThrows(OncelogException.class, config::check);
    assertEquals(ErrorKind.INVALID_CONFIG, error.kind());
    assertTrue(error.getMessage().contains(word), error.getMessage());
  }

  private static AdminConfig config() {
    return new AdminConfig("localhost:1");
  }

  private Path file(String name, String content) throws IOException {
    return Files.writeString(folder.resolve(name), content);
  }

  @Test
  void whatContradictsItselfIsRefused() throws IOException {
    Path some = file("some", "x");
    refused("belong together", config().tlsCertFile(some));
    refused("needs TLS", config().token("secret"));
    refused("contradicts", config().tls(true).token("secret").tokenFile(some));
  }

  @Test
  void damagedFilesAreNamed() throws IOException {
    refused("tlsCaFile", config().tlsCaFile(folder.resolve("nowhere")));
    refused("no certificate", config().tlsCaFile(file("ca", "nonsense")));
    refused("tokenFile", config().tls(true).tokenFile(file("empty", "")));
    refused("no token", config().tls(true).tokenFile(file("two", "a b")));
    String junk = Base64.getEncoder().encodeToString(new byte[40]);
    String pem = "-----BEGIN PRIVATE KEY-----\n" + junk + "\n-----END PRIVATE KEY-----\n";
    Path key = file("key", pem);
    assertThrows(OncelogException.class, () -> Certificates.key("tlsKeyFile", key));
  }

  @Test
  void aTokenIsReadAgainWhenItsFileChanges() throws IOException {
    Path path = file("token", "first\n");
    Security.Token token = new Security.Token(path);
    assertEquals("first", token.current());
    file("token", "the second\n".replace(' ', '-'));
    assertEquals("the-second", token.current());
  }
}
