//! Requests over streamable HTTP, at `/mcp`.
//!
//! A server on the loopback interface is reachable by every web page that a browser on this machine shows. So the `Host`
//! header must be that of the loopback interface or one that was allowed (against DNS rebinding), an `Origin` header must
//! have been allowed, and where a token was given, nobody gets further without it. An address that other machines reach is
//! served with a token only.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ingero_common::text::Log;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;

use crate::options::Options;
use crate::server::Server;

/// Where the protocol is served.
pub const PATH: &str = "/mcp";

/// A request's body may have so many bytes, as a line over stdin may.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// A client has so long to send its headers.
const HEADERS: Duration = Duration::from_secs(10);

/// The shortest token that is taken.
const MIN_TOKEN_BYTES: usize = 16;

type Reply = Response<BoxBody<Bytes, Infallible>>;
type Mcp = StreamableHttpService<Server, LocalSessionManager>;

/// What clients must send.
#[derive(Clone)]
pub struct Token(Arc<[u8]>);

impl Token {
    /// The token that the options name.
    ///
    /// Errors: a file that can't be read, a variable that isn't set, a token that is too short or has spaces in it.
    pub fn from_options(options: &Options) -> anyhow::Result<Option<Self>> {
        let (text, origin) = match (&options.token_file, &options.token_env) {
            (Some(path), _) => (read_token(path)?, path.display().to_string()),
            (None, Some(name)) => {
                (std::env::var(name).with_context(|| format!("reading the token from ${name}"))?, format!("${name}"))
            }
            (None, None) => return Ok(None),
        };
        let token = text.trim();
        if token.len() < MIN_TOKEN_BYTES || !token.bytes().all(|b| b.is_ascii_graphic()) {
            bail!(
                "the token in {origin} must be {MIN_TOKEN_BYTES} printable characters or more without spaces; \
                 `openssl rand -hex 32` makes one"
            );
        }
        Ok(Some(Self(token.as_bytes().into())))
    }

    /// Whether a request carries it. How long that takes does not depend on how much of it is right.
    fn is_in(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let (scheme, token) = sent.split_at(sent.len().min(7));
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(token.ct_eq(&self.0))
    }
}

fn read_token(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading the token from {}", path.display()))
}

/// Serves until the process ends. Says on stderr where, once it can be reached.
pub async fn serve(server: Server, address: SocketAddr, options: &Options, log: &Log) -> anyhow::Result<()> {
    let token = Token::from_options(options)?;
    if token.is_none() && !address.ip().is_loopback() {
        bail!("{address} can be reached from other machines: give --token-file or --token-env, or serve at 127.0.0.1");
    }
    let listener = TcpListener::bind(address).await.with_context(|| format!("listening at {address}"))?;
    let address = listener.local_addr().context("listening")?;
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned(), address.ip().to_string()];
    hosts.extend(options.allow_host.iter().cloned());
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(hosts)
        .with_allowed_origins(options.allow_origin.iter().cloned())
        .enforce_origin_validation()
        .with_max_request_body_bytes(MAX_BODY_BYTES);
    let mcp: Mcp = StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config);
    log.note(format!("serving at http://{address}{PATH}"));
    loop {
        // A connection that breaks while it is taken, or too many open files: the next one may do better.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let (mcp, token) = (mcp.clone(), token.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(mcp.clone(), token.clone(), request));
            // A client that breaks off is no matter here.
            let _ = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS)
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(mcp: Mcp, token: Option<Token>, request: Request<Incoming>) -> Result<Reply, Infallible> {
    if token.is_some_and(|token| !token.is_in(request.headers())) {
        let mut reply = text(StatusCode::UNAUTHORIZED, "send the server's token as Authorization: Bearer TOKEN\n");
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        return Ok(reply);
    }
    if request.uri().path() != PATH {
        return Ok(text(StatusCode::NOT_FOUND, "the Model Context Protocol is served at /mcp\n"));
    }
    Ok(mcp.handle(request).await)
}

fn text(status: StatusCode, text: &'static str) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *reply.status_mut() = status;
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_right() {
        let token = Token(b"0123456789abcdef".as_slice().into());
        let sends = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_static(value));
            token.is_in(&headers)
        };
        assert!(sends("Bearer 0123456789abcdef"));
        assert!(sends("bearer 0123456789abcdef"));
        for wrong in
            ["", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Basic 0123456789abcdef"]
        {
            assert!(!sends(wrong), "{wrong}");
        }
        assert!(!token.is_in(&HeaderMap::new()));
    }
}
