//! An HTTP client. Called by the commands that ask a running server.
//! Never retries: the person who typed the command sees the result, and may type it again.

use std::{fmt::Write as _, io::Read, time::Duration};

use anyhow::anyhow;

/// Time limit of a whole GET. A stream has this long for its connection, and again for its response head.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time limit of a whole POST, which may handle many events one by one.
const PATIENCE_POST: Duration = Duration::from_secs(60);

/// The server's address and the token; shared by every command that talks to a server.
#[derive(clap::Args)]
pub struct ServerArgs {
    /// Address of the server
    #[arg(long, env = "FENCEPOST_URL", default_value = "http://127.0.0.1:7411", value_name = "URL",
          value_parser = server_url)]
    pub url: String,
    /// Bearer token to send
    #[arg(long, env = "FENCEPOST_TOKEN", default_value = "dev-admin", hide_env_values = true, value_name = "TOKEN")]
    pub token: String,
}

fn server_url(text: &str) -> Result<String, String> {
    match text.split_once("://") {
        Some(("http" | "https", rest)) if !rest.is_empty() => Ok(text.trim_end_matches('/').to_owned()),
        _ => Err("the address needs http:// or https://".to_owned()),
    }
}

/// The error for an answer that no Fencepost server gives.
pub fn not_fencepost(url: &str, answered: &str) -> anyhow::Error {
    anyhow!("{url} {answered}; that does not look like a Fencepost server")
}

impl ServerArgs {
    /// The status and body of a GET.
    pub fn get(&self, path: &str) -> anyhow::Result<(u16, Vec<u8>)> {
        let patience = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).build();
        let mut response = self.call(path, patience)?;
        let status = response.status().as_u16();
        Ok((status, response.body_mut().read_to_vec()?))
    }

    /// The body of a GET that must succeed. Neither its size nor its duration is limited.
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
        let mut response = sent.map_err(|error| self.unanswered(error))?;
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
            .map_err(|error| self.unanswered(error))
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    // The error for a missing or unreadable answer, with what to try.
    fn unanswered(&self, error: ureq::Error) -> anyhow::Error {
        let url = &self.url;
        let is_tls = url.starts_with("https://");
        match error {
            // Only the text of this error tells it apart: ureq wraps the reason of its TLS library.
            error if is_tls && error.to_string().contains("InvalidContentType") => {
                anyhow!("{url}: that port does not speak TLS; try http://")
            }
            ureq::Error::Protocol(_) if !is_tls => {
                let answered = "did not answer in HTTP, perhaps since it speaks TLS: try https://";
                not_fencepost(url, answered)
            }
            ureq::Error::Io(error) => anyhow!("no answer from {url} ({error}); is the server running?"),
            error => anyhow!("no answer from {url} ({error}); is the server running?"),
        }
    }

    /// The body of a GET that must succeed.
    pub fn read(&self, path: &str) -> anyhow::Result<Vec<u8>> {
        let (status, body) = self.get(path)?;
        if status == 200 {
            return Ok(body);
        }
        Err(self.refused(status, &body))
    }

    /// The error for a status that is no success, with the server's own words if it gave any.
    pub fn refused(&self, status: u16, body: &[u8]) -> anyhow::Error {
        let said = fencepost_kernel::json::parse(body).ok();
        match said.as_ref().and_then(|node| node.get("detail")?.as_str()) {
            Some(detail) => anyhow!("{} answered {status}: {detail}", self.url),
            None => not_fencepost(&self.url, &format!("answered {status}")),
        }
    }
}

/// A text percent-encoded for a path or a query.
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
