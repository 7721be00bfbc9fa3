//! A small client for the commands that ask a running server. Never retries: these commands only read.

use anyhow::{Context, bail};

/// Where the server is and who asks; shared by every command that talks to one.
#[derive(clap::Args)]
pub struct Server {
    /// The server
    #[arg(long, env = "FENCEPOST_URL", default_value = "http://127.0.0.1:7411", value_name = "URL")]
    pub url: String,
    /// The token to show
    #[arg(long, env = "FENCEPOST_TOKEN", default_value = "dev-admin", hide_env_values = true, value_name = "TOKEN")]
    pub token: String,
}

impl Server {
    /// The status and body of a GET.
    pub fn get(&self, path: &str) -> anyhow::Result<(u16, Vec<u8>)> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(std::time::Duration::from_secs(15)))
            .build()
            .into();
        let mut response = agent
            .get(format!("{}{path}", self.url.trim_end_matches('/')))
            .header("Authorization", format!("Bearer {}", self.token))
            .call()
            .with_context(|| format!("no answer from {}; is the server running?", self.url))?;
        let status = response.status().as_u16();
        Ok((status, response.body_mut().read_to_vec()?))
    }

    /// The body of a GET that must succeed.
    pub fn read(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let (status, body) = self.get(path)?;
        if status == 200 {
            return Ok(body);
        }
        let said = fencepost_kernel::json::parse(&body).ok();
        let detail = said.as_ref().and_then(|node| node.get("detail")?.as_str());
        bail!("{} answered {status}: {}", self.url, detail.unwrap_or("no explanation"))
    }
}
