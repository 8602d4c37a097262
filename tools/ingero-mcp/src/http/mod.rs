//! Requests over streamable HTTP, at `/mcp`.
//!
//! A server on the loopback interface is reachable by every user of this machine, and by every web page that a browser on it
//! shows. So every request must carry a token (`token.rs`), the `Host` header must be that of the loopback interface or one that
//! was allowed (against DNS rebinding), and an `Origin` header must have been allowed.
//!
//! What a client may hold on to is bounded: connections, the time for a request's headers and body, its size, sessions.

mod token;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ingero_common::text::Log;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::options::Options;
use crate::server::Server;
use token::Token;

/// Where the protocol is served.
pub const PATH: &str = "/mcp";

/// A request's body may have so many bytes, as a line over stdin may.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// A client has so long to send its headers...
const HEADERS: Duration = Duration::from_secs(10);

/// ... and so long for all of its body.
const BODY: Duration = Duration::from_secs(10);

/// Connections at once; more wait until one is closed. Each costs a descriptor, of which there are usually 1,024, and one that
/// waits for events stays open.
const MAX_CONNECTIONS: usize = 256;

/// Sessions at once; each costs some tasks, and ends five minutes after its last request.
const MAX_SESSIONS: usize = 64;

type Reply = Response<BoxBody<Bytes, Infallible>>;
type Mcp = StreamableHttpService<Server, LocalSessionManager>;

/// What all connections share.
struct Door {
    mcp: Mcp,
    sessions: Arc<LocalSessionManager>,
    token: Option<Token>,
}

/// Serves until the process ends. Says on stderr where, once it can be reached.
pub async fn serve(server: Server, address: SocketAddr, options: &Options, log: &Log) -> anyhow::Result<()> {
    let token = Token::from_options(options)?;
    if token.is_none() && !address.ip().is_loopback() {
        bail!("{address} can be reached from other machines: give --token-file or --token-env, or serve at 127.0.0.1");
    }
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening at {address}"))?;
    let address = listener.local_addr().context("listening")?;
    let token = match token {
        None if !options.no_token => {
            let (token, path) = Token::random(address)?;
            log.note(format!("clients must send the token in {}", path.display()));
            remove_at_the_end(path)?;
            Some(token)
        }
        token => token,
    };
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), address.ip().to_string()];
    hosts.extend(options.allow_host.iter().cloned());
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(hosts)
        .with_allowed_origins(options.allow_origin.iter().cloned())
        .enforce_origin_validation()
        .with_max_request_body_bytes(MAX_BODY_BYTES);
    let sessions: Arc<LocalSessionManager> = Arc::default();
    let mcp: Mcp = StreamableHttpService::new(move || Ok(server.clone()), Arc::clone(&sessions), config);
    log.note(format!("serving at http://{address}{PATH}"));
    accept(&listener, Arc::new(Door { mcp, sessions, token })).await
}

async fn accept(listener: &TcpListener, door: Arc<Door>) -> anyhow::Result<()> {
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = Arc::clone(&free).acquire_owned().await.context("waiting for a connection to end")?;
        // A connection that breaks while it is taken, or too many open files: the next one may do better.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let door = Arc::clone(&door);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&door), request));
            // A client that breaks off is no matter here.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS)
                .serve_connection(TokioIo::new(stream), service)
                .await;
            drop(permit);
        });
    }
}

/// Removes the token's file when a signal ends the process.
fn remove_at_the_end(path: PathBuf) -> anyhow::Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]).context("waiting for signals")?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            // It may be gone already; the process ends either way.
            let _ = std::fs::remove_file(path);
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait)
        .context("starting a thread that waits for signals")?;
    Ok(())
}

async fn answer(door: Arc<Door>, request: Request<Incoming>) -> Result<Reply, Infallible> {
    if door.token.as_ref().is_some_and(|token| !token.is_in(request.headers())) {
        let mut reply = text(StatusCode::UNAUTHORIZED, "send the server's token as Authorization: Bearer TOKEN\n");
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return Ok(reply);
    }
    if request.uri().path() != PATH {
        return Ok(text(StatusCode::NOT_FOUND, "the Model Context Protocol is served at /mcp\n"));
    }
    let (head, body) = request.into_parts();
    let body = match tokio::time::timeout(BODY, Limited::new(body, MAX_BODY_BYTES).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Ok(text(StatusCode::PAYLOAD_TOO_LARGE, "a request may have 16 MiB\n"));
        }
        Ok(Err(_)) => return Ok(text(StatusCode::BAD_REQUEST, "the body breaks off\n")),
        Err(_) => return Ok(text(StatusCode::REQUEST_TIMEOUT, "the body of a request must come within 10 s\n")),
    };
    if head.method == Method::POST && !head.headers.contains_key("mcp-session-id") && begins_session(&body) {
        // Two that come at once may both be let in: it is the order of magnitude that counts.
        if door.sessions.sessions.read().await.len() >= MAX_SESSIONS {
            let mut reply = text(StatusCode::SERVICE_UNAVAILABLE, "too many sessions: end one, or come again later\n");
            reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("60"));
            return Ok(reply);
        }
    }
    Ok(door.mcp.handle(Request::from_parts(head, Full::new(body))).await)
}

/// Whether a request without a session would begin one.
fn begins_session(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Message<'a> {
        #[serde(borrow)]
        method: std::borrow::Cow<'a, str>,
    }
    serde_json::from_slice::<Message<'_>>(body).is_ok_and(|message| message.method == "initialize")
}

fn text(status: StatusCode, text: &'static str) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *reply.status_mut() = status;
    reply
}
