//! Requests over stdin and stdout, one a line.
//!
//! Stdout belongs to the protocol alone. So its descriptor is moved away first and stderr put in its place: whatever a
//! library or a panic prints ends where people look.
//!
//! What rmcp 3 leaves to its user is done at the edges here:
//! - It ends when the first message is a notification or a response, where a server should wait for a request: such
//!   messages are left out until one comes.
//! - After the end of input it waits up to 5 s for answers that are still being made: here all is over within 1 s.

use std::fs::File;
use std::future::Future;
use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context;
use rmcp::model::JsonRpcMessage;
use rmcp::service::{RxJsonRpcMessage, ServerInitializeError, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::{RoleServer, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use crate::server::Server;

/// Answers that are being made when the input ends have so long.
const LAST_ANSWERS: Duration = Duration::from_millis(800);

/// Takes stdout away from everything else: prints of whatever kind go to stderr from here on.
pub fn claim_stdout() -> anyhow::Result<File> {
    let claim = || -> rustix::io::Result<File> {
        let stdout = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?;
        rustix::stdio::dup2_stdout(rustix::stdio::stderr().as_fd())?;
        Ok(File::from(stdout))
    };
    claim().context("taking stdout for the protocol")
}

/// Serves until the end of input.
pub async fn serve(server: Server, stdout: File) -> anyhow::Result<()> {
    serve_on(server, tokio::io::stdin(), tokio::fs::File::from_std(stdout)).await
}

/// Serves until `input` ends.
pub async fn serve_on<R, W>(server: Server, input: R, output: W) -> anyhow::Result<()>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (ended, end) = oneshot::channel();
    let transport = Edges { inner: AsyncRwTransport::new_server(input, output), begun: false, ended: Some(ended) };
    let serve = async move {
        let service = match server.serve(transport).await {
            Ok(service) => service,
            Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
            Err(error) => return Err(error).context("beginning to talk to the client"),
        };
        service.waiting().await.context("talking to the client")?;
        Ok(())
    };
    tokio::select! {
        result = serve => result,
        () = async { let _ = end.await; tokio::time::sleep(LAST_ANSWERS).await } => Ok(()),
    }
}

/// The transport with what it lacks.
struct Edges<T> {
    inner: T,
    /// A request has come.
    begun: bool,
    /// Told when the input ends.
    ended: Option<oneshot::Sender<()>>,
}

impl<T: Transport<RoleServer>> Transport<RoleServer> for Edges<T> {
    type Error = T::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let Some(message) = self.inner.receive().await else {
                if let Some(ended) = self.ended.take() {
                    let _ = ended.send(());
                }
                return None;
            };
            self.begun |= matches!(message, JsonRpcMessage::Request(_));
            if self.begun {
                return Some(message);
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
