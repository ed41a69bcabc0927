//! TLS and tokens: the client's proof to nodes, and the proof it wants of them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use http::HeaderValue;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use crate::errors::{Error, ErrorKind, Result};

/// How a client speaks with nodes, and its identity. TLS is used if `tls` is set or a file of it is
/// given. Files are read again when they have changed: certificates with the next connection, a
/// token with the next call.
#[derive(Clone, Default)]
pub struct SecurityConfig {
    /// TLS; without `tls_ca_file` the system's authorities are trusted.
    pub tls: bool,
    /// The authorities of the nodes, PEM.
    pub tls_ca_file: Option<PathBuf>,
    /// This client's certificate, PEM; with `tls_key_file` or not at all.
    pub tls_cert_file: Option<PathBuf>,
    /// The certificate's key, PEM.
    pub tls_key_file: Option<PathBuf>,
    /// Holds a token with the client's identity. Sent over TLS only.
    pub token_file: Option<PathBuf>,
    /// A token with the client's identity. Sent over TLS only.
    pub token: Option<String>,
}

/// Says whether there is a token, and never which.
impl fmt::Debug for SecurityConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecurityConfig")
            .field("tls", &self.tls)
            .field("tls_ca_file", &self.tls_ca_file)
            .field("tls_cert_file", &self.tls_cert_file)
            .field("tls_key_file", &self.tls_key_file)
            .field("token_file", &self.token_file)
            .field("token", &self.token.as_ref().map(|_| "..."))
            .finish()
    }
}

const MAX_SECRET_FILE: u64 = 1 << 20;

fn fail(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidConfig, message)
}

impl SecurityConfig {
    pub(crate) fn is_secured(&self) -> bool {
        self.tls || self.tls_ca_file.is_some() || self.tls_cert_file.is_some()
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.tls_cert_file.is_some() != self.tls_key_file.is_some() {
            return Err(fail("tls_cert_file and tls_key_file belong together"));
        }
        if self.token.is_some() && self.token_file.is_some() {
            return Err(fail("token contradicts token_file"));
        }
        if (self.token.is_some() || self.token_file.is_some()) && !self.is_secured() {
            return Err(fail("a token needs TLS: in the clear everybody on the way could use it"));
        }
        if self.is_secured() {
            self.tls_config()?;
        }
        if let Some(token) = &self.token {
            bearer("token", token)?;
        }
        if let Some(path) = &self.token_file {
            read_token(path)?;
        }
        Ok(())
    }

    /// Reads the files.
    pub(crate) fn tls_config(&self) -> Result<ClientConfig> {
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| fail(format!("tls: {e}")))?
            .with_root_certificates(self.roots()?);
        let mut config = match (&self.tls_cert_file, &self.tls_key_file) {
            (Some(cert), Some(key)) => {
                let chain = certificates("tls_cert_file", cert)?;
                let key = PrivateKeyDer::from_pem_slice(&read_small("tls_key_file", key)?)
                    .map_err(|e| fail(format!("tls_key_file: {}: {e}", key.display())))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|e| fail(format!("tls_cert_file, tls_key_file: {e}")))?
            }
            _ => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    fn roots(&self) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = &self.tls_ca_file {
            for certificate in certificates("tls_ca_file", path)? {
                roots
                    .add(certificate)
                    .map_err(|e| fail(format!("tls_ca_file: {}: {e}", path.display())))?;
            }
        } else {
            let found = rustls_native_certs::load_native_certs();
            roots.add_parsable_certificates(found.certs);
            if roots.is_empty() {
                return Err(fail("tls: the system has no authorities to trust; name tls_ca_file"));
            }
        }
        Ok(roots)
    }
}

fn certificates(setting: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let pem = read_small(setting, path)?;
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(fail(format!("{setting}: {} holds no certificate in PEM", path.display()))),
    }
}

fn read_small(setting: &str, path: &Path) -> Result<Vec<u8>> {
    let wrong = |problem: String| fail(format!("{setting}: {}: {problem}", path.display()));
    let found = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?;
    if found.len() > MAX_SECRET_FILE {
        return Err(wrong(format!("{} bytes", found.len())));
    }
    std::fs::read(path).map_err(|e| wrong(e.to_string()))
}

fn bearer(setting: &str, token: &str) -> Result<HeaderValue> {
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(fail(format!("{setting} holds no token")));
    }
    let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
        .map_err(|_| fail(format!("{setting} holds no token")))?;
    value.set_sensitive(true);
    Ok(value)
}

fn read_token(path: &Path) -> Result<HeaderValue> {
    let data = read_small("token_file", path)?;
    bearer(&format!("token_file: {}", path.display()), String::from_utf8_lossy(&data).trim())
}

/// The token of each call, read from its file again when that has changed.
pub(crate) struct Token {
    path: Option<PathBuf>,
    known: Mutex<KnownToken>,
}

struct KnownToken {
    value: Option<HeaderValue>,
    changed: Option<(SystemTime, u64)>,
}

impl Token {
    /// `None` without a token.
    pub(crate) fn new(config: &SecurityConfig) -> Result<Option<Self>> {
        let value = config.token.as_deref().map(|token| bearer("token", token)).transpose()?;
        if value.is_none() && config.token_file.is_none() {
            return Ok(None);
        }
        let known = Mutex::new(KnownToken { value, changed: None });
        Ok(Some(Self { path: config.token_file.clone(), known }))
    }

    pub(crate) fn current(&self) -> Result<HeaderValue> {
        let mut known = self.known.lock().expect("no panic while it is held");
        if let Some(path) = &self.path {
            let found = std::fs::metadata(path)
                .and_then(|found| Ok((found.modified()?, found.len())))
                .map_err(|e| fail(format!("token_file: {}: {e}", path.display())))?;
            if known.changed != Some(found) {
                known.value = Some(read_token(path)?);
                known.changed = Some(found);
            }
        }
        known.value.clone().ok_or_else(|| fail("there is no token"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_contradict_each_other_are_refused() {
        let with = |set: fn(&mut SecurityConfig)| {
            let mut config = SecurityConfig::default();
            set(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert!(with(|c| c.tls_cert_file = Some("a".into())).contains("belong together"));
        assert!(with(|c| c.token = Some("t".into())).contains("a token needs TLS"));
        assert!(with(|c| c.tls_ca_file = Some("/nowhere".into())).contains("/nowhere"));
        let both = with(|c| {
            c.token = Some("t".into());
            c.token_file = Some("t".into());
        });
        assert!(both.contains("contradicts"));
    }

    #[test]
    fn a_token_is_never_printed() {
        let config = SecurityConfig { token: Some("secret".into()), ..Default::default() };
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn a_tokens_file_is_read_again_when_it_changes() {
        let path = std::env::temp_dir().join(format!("oncelog-token-{}", std::process::id()));
        std::fs::write(&path, "first\n").unwrap();
        let config = SecurityConfig { token_file: Some(path.clone()), ..Default::default() };
        let token = Token::new(&config).unwrap().unwrap();
        assert_eq!(token.current().unwrap(), "Bearer first");
        std::fs::write(&path, "the-second").unwrap();
        assert_eq!(token.current().unwrap(), "Bearer the-second");
        std::fs::write(&path, "not a token").unwrap();
        assert!(token.current().is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(token.current().is_err());
    }
}
