//! Finds the programs of other servers, and the user to run them as. Called by this crate and by `bench`.

use std::{
    io,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::geteuid;

/// The folder for what `./test` builds or fetches, outside of the work tree; `None` where no home is known.
pub fn cache() -> Option<PathBuf> {
    let named = std::env::var_os("FENCEPOST_CACHE").map(PathBuf::from);
    named.or_else(|| {
        let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        Some(home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?.join("fencepost"))
    })
}

/// The path of a program on the PATH, or in Debian's folder of PostgreSQL.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    std::env::split_paths(&path)
        .chain(debian.map(|version| version.path().join("bin")))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// A command for a PostgreSQL program. PostgreSQL refuses to run as root, so root runs it as the user postgres.
pub fn as_postgres(program: &str) -> Command {
    let program = find(program).unwrap_or_else(|| program.into());
    let mut command = if geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--reset-env"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir("/");
    command
}

/// Makes a folder that PostgreSQL can keep its data in.
pub fn folder_of_postgres(dir: &Path) -> io::Result<()> {
    if geteuid().is_root() {
        let made =
            Command::new("install").args(["-d", "-o", "postgres", "-g", "postgres", "-m", "700"]).arg(dir).status()?;
        if !made.success() {
            return Err(io::Error::other("could not make a folder for the user postgres"));
        }
    } else {
        std::fs::create_dir_all(dir)?;
    }
    Ok(())
}

/// Makes a PostgreSQL cluster in `dir/data`. The user postgres must be able to enter the folders above.
pub fn init_postgres(dir: &Path) -> io::Result<()> {
    folder_of_postgres(dir)?;
    let output = as_postgres("initdb")
        .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "-D"])
        .arg(dir.join("data"))
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("initdb: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// A port that was free at the time of the call.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
