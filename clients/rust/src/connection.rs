//! A connection to one node, made when there is something to say and made anew when it broke.
//!
//! HTTP/2 is hyper's, messages are tonic's. The connection is the client's own instead of a
//! tonic channel, because a producer must know that a node is reached before it numbers a batch
//! for it, and because certificates are read again for each handshake.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::BodyExt;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::Status;
use tonic::body::Body;

use crate::config::ClientConfig;
use crate::errors::{Error, ErrorKind, Result};
use crate::founding::Founding;
use crate::pb;
use crate::secure::{SecurityConfig, Token};

/// A node that hangs must not hold up the answers of another.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Begins the text of a status of a call that was not sent.
pub(crate) const NO_CONNECTION: &str = "failed to connect";
const MAX_MESSAGE: usize = 128 << 20;

/// Parts that all connections of a client share.
pub(crate) struct Dialer {
    user_agent: HeaderValue,
    security: SecurityConfig,
    token: Option<Token>,
    connect_timeout: Duration,
    pub(crate) founding: Founding,
}

impl Dialer {
    pub(crate) fn new(config: &ClientConfig) -> Result<Self> {
        Ok(Self {
            user_agent: HeaderValue::from_str(&config.client_id)
                .map_err(|e| Error::new(ErrorKind::InvalidConfig, format!("client_id: {e}")))?,
            security: config.security.clone(),
            token: Token::new(&config.security)?,
            connect_timeout: CONNECT_TIMEOUT.min(config.request_timeout),
            founding: Founding::default(),
        })
    }
}

/// A node. Clones share its connection.
#[derive(Clone)]
pub(crate) struct Node {
    inner: Arc<NodeInner>,
    /// How long the node may work on a call.
    limit: Option<Duration>,
}

struct NodeInner {
    address: String,
    origin: Uri,
    dialer: Arc<Dialer>,
    connection: Mutex<Connection>,
}

#[derive(Default)]
struct Connection {
    sender: Option<SendRequest<Body>>,
    /// When the last attempt failed, and why: a caller that has waited for it need not try again.
    failed: Option<(Instant, String)>,
}

impl Node {
    pub(crate) fn new(address: &str, dialer: Arc<Dialer>) -> Result<Self> {
        let scheme = if dialer.security.is_secured() { "https" } else { "http" };
        let origin = format!("{scheme}://{address}")
            .parse()
            .map_err(|e| Error::invalid("address", format!("{address}: {e}")))?;
        let inner =
            NodeInner { address: address.into(), origin, dialer, connection: Mutex::default() };
        Ok(Self { inner: Arc::new(inner), limit: None })
    }

    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Returns when there is a connection.
    pub(crate) async fn connect(&self) -> std::result::Result<(), Status> {
        self.inner.sender().await.map(|_| ())
    }

    pub(crate) fn log(self) -> pb::log_service_client::LogServiceClient<Self> {
        let origin = self.inner.origin.clone();
        pb::log_service_client::LogServiceClient::with_origin(self, origin)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
    }

    pub(crate) fn cluster(self) -> pb::cluster_service_client::ClusterServiceClient<Self> {
        let origin = self.inner.origin.clone();
        pb::cluster_service_client::ClusterServiceClient::with_origin(self, origin)
            .max_decoding_message_size(MAX_MESSAGE)
    }

    pub(crate) fn producers(self) -> pb::producer_service_client::ProducerServiceClient<Self> {
        let origin = self.inner.origin.clone();
        pb::producer_service_client::ProducerServiceClient::with_origin(self, origin)
            .max_decoding_message_size(MAX_MESSAGE)
    }

    pub(crate) fn transactions(
        self,
    ) -> pb::transaction_service_client::TransactionServiceClient<Self> {
        let origin = self.inner.origin.clone();
        pb::transaction_service_client::TransactionServiceClient::with_origin(self, origin)
            .max_decoding_message_size(MAX_MESSAGE)
    }

    pub(crate) fn security(self) -> pb::security_service_client::SecurityServiceClient<Self> {
        let origin = self.inner.origin.clone();
        pb::security_service_client::SecurityServiceClient::with_origin(self, origin)
            .max_decoding_message_size(MAX_MESSAGE)
    }

    pub(crate) fn sinks(self) -> pb::sink_service_client::SinkServiceClient<Self> {
        let origin = self.inner.origin.clone();
        pb::sink_service_client::SinkServiceClient::with_origin(self, origin)
            .max_decoding_message_size(MAX_MESSAGE)
    }

    pub(crate) fn groups(self) -> pb::group_service_client::GroupServiceClient<Self> {
        let origin = self.inner.origin.clone();
        pb::group_service_client::GroupServiceClient::with_origin(self, origin)
            .max_decoding_message_size(MAX_MESSAGE)
    }
}

type Answer = std::result::Result<Response<Body>, Status>;

impl tower_service::Service<Request<Body>> for Node {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Answer> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let inner = self.inner.clone();
        let headers = request.headers_mut();
        headers.insert(header::USER_AGENT, inner.dialer.user_agent.clone());
        inner.dialer.founding.write(headers);
        if let Some(limit) = self.limit {
            // At most eight digits are allowed.
            let ms = limit.as_millis().clamp(1, 99_999_999).to_string() + "m";
            headers.insert("grpc-timeout", HeaderValue::from_str(&ms).expect("digits"));
        }
        Box::pin(async move {
            if let Some(token) = &inner.dialer.token {
                let token = token.current().map_err(|e| Status::unauthenticated(e.to_string()))?;
                request.headers_mut().insert(header::AUTHORIZATION, token);
            }
            let mut sender = inner.sender().await?;
            let response = sender.send_request(request).await.map_err(broken)?;
            Ok(response.map(|body| Body::new(body.map_err(broken))))
        })
    }
}

/// Any end of a connection or a stream without a status.
fn broken(error: hyper::Error) -> Status {
    use std::error::Error as _;
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    Status::unavailable(text)
}

impl NodeInner {
    async fn sender(&self) -> std::result::Result<SendRequest<Body>, Status> {
        let asked = Instant::now();
        let mut connection = self.connection.lock().await;
        if let Some(sender) = &connection.sender
            && !sender.is_closed()
        {
            return Ok(sender.clone());
        }
        if let Some((at, why)) = &connection.failed
            && *at > asked
        {
            return Err(Status::unavailable(why.as_str()));
        }
        let limit = self.dialer.connect_timeout;
        let made = match timeout(limit, self.dial()).await {
            Ok(made) => made,
            Err(_) => Err(format!("no connection within {limit:?}")),
        };
        match made {
            Ok(sender) => {
                connection.sender = Some(sender.clone());
                Ok(sender)
            }
            Err(why) => {
                let why = format!("{NO_CONNECTION}: {why}");
                connection.failed = Some((Instant::now(), why.clone()));
                Err(Status::unavailable(why))
            }
        }
    }

    async fn dial(&self) -> std::result::Result<SendRequest<Body>, String> {
        let stream = TcpStream::connect(&self.address).await.map_err(|e| e.to_string())?;
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        if !self.dialer.security.is_secured() {
            return handshake(TokioIo::new(stream)).await;
        }
        // Between two files that are replaced this fails, and is tried again.
        let config = self.dialer.security.tls_config().map_err(|e| e.to_string())?;
        let host = self.origin.host().unwrap_or_default().trim_matches(['[', ']']);
        let name = ServerName::try_from(host.to_owned()).map_err(|e| e.to_string())?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
            .map_err(|e| e.to_string())?;
        handshake(TokioIo::new(stream)).await
    }
}

async fn handshake<T>(io: T) -> std::result::Result<SendRequest<Body>, String>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(4 << 20)
        .initial_connection_window_size(8 << 20)
        .max_frame_size(1 << 18)
        .max_send_buf_size(2 << 20)
        .handshake(io)
        .await
        .map_err(|e| broken(e).message().to_owned())?;
    tokio::spawn(connection); // calls learn why it ended
    Ok(sender)
}
