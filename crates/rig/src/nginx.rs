//! An nginx for one test, which answers by itself and logs its requests. Called by tests.

use std::{net::TcpStream, process::Command};

use tempfile::TempDir;

use crate::{programs::free_port, server::Server};

/// A running nginx; dropping it kills it.
pub struct Nginx {
    _server: Server,
    port: u16,
    dir: TempDir,
}

impl Nginx {
    /// Starts an nginx that answers every request with `location`, such as `return 200 'hello';`, and logs each request
    /// in `log_format`, such as `$request`.
    pub fn start(location: &str, log_format: &str) -> Self {
        let (port, dir) = (free_port().unwrap(), tempfile::tempdir().unwrap());
        let folder = dir.path().display();
        let settings = format!(
            "user root;\nworker_processes 1;\ndaemon off;\npid {folder}/nginx.pid;\nerror_log {folder}/error.log warn;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\nlog_format heard escape=json '{log_format}';\naccess_log {folder}/heard.log heard;\n\
             client_body_temp_path {folder}/body;\nproxy_temp_path {folder}/proxy;\nfastcgi_temp_path {folder}/fastcgi;\n\
             uwsgi_temp_path {folder}/uwsgi;\nscgi_temp_path {folder}/scgi;\n\
             server {{\nlisten 127.0.0.1:{port};\nlocation / {{\n{location}\n}}\n}}\n}}\n"
        );
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, settings).unwrap();
        let mut command = Command::new("nginx");
        command.arg("-p").arg(dir.path()).arg("-e").arg(dir.path().join("error.log")).arg("-c").arg(&file);
        let mut server = Server::spawn(command, dir.path());
        server.ready(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { _server: server, port, dir }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// One line for each request that was answered. The line of the last one may still be missing.
    pub fn heard(&self) -> Vec<String> {
        let log = std::fs::read(self.dir.path().join("heard.log")).unwrap_or_default();
        String::from_utf8_lossy(&log).lines().map(str::to_owned).collect()
    }
}
