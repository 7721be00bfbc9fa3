//! A small client for the commands that ask a running server. Never retries: whoever types a command sees what came of it,
//! and may type it again.

use std::{fmt::Write as _, io::Read, time::Duration};

use anyhow::{Context, anyhow};

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(15);
/// A POST may do many things one by one.
const PATIENCE_POST: Duration = Duration::from_secs(60);

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
        let patience = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build();
        let mut response = self.call(path, patience)?;
        let status = response.status().as_u16();
        Ok((status, response.body_mut().read_to_vec()?))
    }

    /// The body of a GET that must succeed, however long it is and takes.
    pub fn stream(&self, path: &str) -> anyhow::Result<impl Read> {
        let patience =
            ureq::Agent::config_builder().timeout_connect(Some(PATIENCE)).timeout_recv_response(Some(PATIENCE)).build();
        let mut response = self.call(path, patience)?;
        match response.status().as_u16() {
            200 => Ok(response.into_body().into_reader()),
            status => Err(self.refused(status, &response.body_mut().read_to_vec()?)),
        }
    }

    /// The status and body of a POST of JSON.
    pub fn post(&self, path: &str, body: &str) -> anyhow::Result<(u16, Vec<u8>)> {
        let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE_POST)).http_status_as_error(false);
        let sent = ureq::Agent::new_with_config(config.build())
            .post(self.at(path))
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Content-Type", "application/json")
            .send(body);
        let mut response = sent.with_context(|| self.silent())?;
        let status = response.status().as_u16();
        Ok((status, response.body_mut().read_to_vec()?))
    }

    fn call(&self, path: &str, config: ureq::config::Config) -> anyhow::Result<ureq::http::Response<ureq::Body>> {
        ureq::Agent::new_with_config(config)
            .get(self.at(path))
            .config()
            .http_status_as_error(false)
            .build()
            .header("Authorization", format!("Bearer {}", self.token))
            .call()
            .with_context(|| self.silent())
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.trim_end_matches('/'))
    }

    fn silent(&self) -> String {
        format!("no answer from {}; is the server running?", self.url)
    }

    /// The body of a GET that must succeed.
    pub fn read(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let (status, body) = self.get(path)?;
        if status == 200 {
            return Ok(body);
        }
        Err(self.refused(status, &body))
    }

    fn refused(&self, status: u16, body: &[u8]) -> anyhow::Error {
        let said = fencepost_kernel::json::parse(body).ok();
        let detail = said.as_ref().and_then(|node| node.get("detail")?.as_str());
        anyhow!("{} answered {status}: {}", self.url, detail.unwrap_or("no explanation"))
    }
}

/// A text as part of a path or a query.
pub fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte as char);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}
