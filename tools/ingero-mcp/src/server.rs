//! Which tool, prompt or resource does a request mean? The protocol itself is rmcp's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, GetPromptRequestParams, GetPromptResponse, Implementation,
    JsonObject, ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
    ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use tokio_util::sync::CancellationToken;

use crate::answer::quoted;
use crate::recording::Recording;
use crate::store::Cancel;
use crate::tools::{self, Context, Problem, ToolEntry, failure};
use crate::{prompt, resources};

/// The server: recordings, and what can be asked of them. Clones share everything.
#[derive(Clone)]
pub struct Server {
    recordings: Arc<[Arc<Recording>]>,
    tools: Arc<[ToolEntry]>,
}

impl Server {
    /// With all tools.
    pub fn new(recordings: Vec<Arc<Recording>>) -> Self {
        Self { recordings: recordings.into(), tools: tools::all().into() }
    }

    /// With another tool beside.
    #[must_use]
    pub fn with_tool(self, tool: ToolEntry) -> Self {
        Self { tools: self.tools.iter().cloned().chain([tool]).collect(), ..self }
    }

    /// Runs `work` on a thread that may wait; it is told when the request is cancelled.
    async fn blocking<T: Send + 'static>(
        &self,
        ct: CancellationToken,
        work: impl FnOnce(&Context<'_>) -> T + Send + 'static,
    ) -> Result<T, ErrorData> {
        let recordings = Arc::clone(&self.recordings);
        let cancel: Cancel = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&cancel);
        let mut task = tokio::task::spawn_blocking(move || work(&Context { recordings: &recordings, cancel }));
        let result = tokio::select! {
            result = &mut task => result,
            () = ct.cancelled() => {
                told.store(true, Ordering::Relaxed);
                task.await
            }
        };
        // A panic ends the one request, with its message on stderr.
        result.map_err(|_| ErrorData::internal_error("this request met a bug; the server goes on", None))
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources().build();
        ServerConfig::new(capabilities)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
            .with_server_info(Implementation::new("ingero-mcp", env!("CARGO_PKG_VERSION")))
            .with_instructions(prompt::INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.tools.iter().map(|entry| entry.tool.clone()).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(entry) = self.tools.iter().find(|entry| entry.tool.name == request.name).cloned() else {
            let names: Vec<&str> = self.tools.iter().map(|entry| &*entry.tool.name).collect();
            let message = format!("unknown tool {}; there are {}", quoted(&request.name), names.join(", "));
            return Err(ErrorData::invalid_params(message, None));
        };
        let arguments: JsonObject = request.arguments.unwrap_or_default();
        let result = self.blocking(context.ct, move |context| entry.call(context, &arguments)).await;
        let result: CallToolResult = match result {
            // rmcp drops the answer of a cancelled request.
            Ok(answer) => answer.unwrap_or_else(|| failure("cancelled")),
            Err(error) => failure(&error.message),
        };
        Ok(result.into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(vec![prompt::prompt()]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name != prompt::NAME {
            let message = format!("unknown prompt {}; there is {}", quoted(&request.name), prompt::NAME);
            return Err(ErrorData::invalid_params(message, None));
        }
        Ok(prompt::get(request.arguments.as_ref()).into())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::list(&self.recordings)))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(Vec::new()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.clone();
        match self.blocking(context.ct, move |context| resources::read(&uri, context)).await? {
            Some(Ok(result)) => Ok(result.into()),
            Some(Err(Problem::Told(message))) => Err(ErrorData::internal_error(message, None)),
            Some(Err(Problem::Cancelled)) => Err(ErrorData::internal_error("cancelled", None)),
            None => Err(ErrorData::resource_not_found(resources::unknown(&request.uri, &self.recordings), None)),
        }
    }
}
