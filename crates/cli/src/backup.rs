//! `fencepost backup`: writes the rows of a server, or of a store that no server uses, to a file; or checks a file.
//! Never overwrites. A file gets its final name only when it is complete, synced and checked. Called by `main`.

use std::{
    fs::{self, File},
    io::{self, BufReader, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use anyhow::{Context, bail};
use fencepost::{
    clock::SystemClock,
    moving::{self, Backup, Contents, Progress},
};
use fencepost_wire::time::rfc3339;
use rustix::{
    fs::{CWD, RenameFlags, renameat_with},
    io::Errno,
};

use crate::{
    client::ServerArgs,
    keys,
    moving::{Teller, Use, address, open, runtime},
    table::counted,
};

/// Back up a running server, or a store that no server uses, to a file; or check such a file.
#[derive(clap::Args)]
#[command(after_help = AFTER)]
pub struct Args {
    /// Read this store itself, and not through a server: a directory, postgres://… or redis://…
    #[arg(long, value_name = "DIR|URL")]
    from: Option<String>,
    /// The file to write; it must not be there yet
    #[arg(long, value_name = "FILE", required_unless_present = "verify")]
    out: Option<PathBuf>,
    /// Write nothing: check this backup whole
    #[arg(long, value_name = "FILE", conflicts_with_all = ["from", "out"])]
    verify: Option<PathBuf>,
    #[command(flatten)]
    server: ServerArgs,
}

const AFTER: &str = "\
Claims and seals go on while a server is backed up: rows may be of any moment between the two times that the file \
names. The file is checked whole before it gets its name. It holds receipts and kept bodies: guard it like the store.
The key file that seals the secrets of webhooks is not in it: back it up apart.

Examples:
  fencepost backup --out today.fpb
  FENCEPOST_TOKEN=$(cat token) fencepost backup \\
      --url https://fences.internal --out /backup/$(date +%F).fpb
  fencepost backup --from ./fencepost-data --out today.fpb   no server runs
  fencepost backup --from postgres://fp@db/fences --out today.fpb
  fencepost backup --verify today.fpb";

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.verify {
        let contents = check(file)?;
        print!("sound     {}\n{}", file.display(), told(&contents));
        return Ok(ExitCode::SUCCESS);
    }
    let Some(out) = &args.out else { bail!("--out FILE is missing") };
    if out.exists() {
        bail!("{} exists; a backup never overwrites", out.display());
    }
    let (partial, mut file) = Partial::beside(out)?;
    match &args.from {
        Some(from) => read_store(from, &mut file)?,
        None => read_server(&args.server, &mut file)?,
    }
    file.sync_all()?;
    let contents = check(&partial.0)?;
    partial.named(out).with_context(|| format!("{} could not get its name", out.display()))?;
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()?;
    print!("written   {}, {} bytes, checked\n{}", out.display(), out.metadata()?.len(), told(&contents));
    Ok(ExitCode::SUCCESS)
}

/// A file under a temporary name, which the drop removes.
struct Partial(PathBuf);

impl Partial {
    /// Creates it beside `out`, under a random name. Only its owner may read it: it holds what the store holds.
    fn beside(out: &Path) -> anyhow::Result<(Self, File)> {
        let mut path = out.as_os_str().to_owned();
        path.push(format!(".partial-{:016x}", getrandom::u64().context("no randomness")?));
        let path = PathBuf::from(path);
        let dir = out.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !dir.is_dir() {
            bail!("cannot write {}: directory {} does not exist", out.display(), dir.display());
        }
        let file = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot write {}", out.display()))?;
        Ok((Self(path), file))
    }

    /// Renames it to its final name. Fails if a file of that name exists.
    fn named(self, out: &Path) -> io::Result<()> {
        match renameat_with(CWD, &self.0, CWD, out, RenameFlags::NOREPLACE) {
            // NFS, 9p and some FUSE filesystems lack this rename. A hard link never replaces a file either.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => fs::hard_link(&self.0, out),
            renamed => Ok(renamed?),
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn read_store(from: &str, file: &mut File) -> anyhow::Result<()> {
    let from = address(from)?;
    runtime()?.block_on(async {
        let store = open(&from, Use::BackUp).await?;
        let mut out = BufWriter::new(file);
        let (mut teller, begun) = (Teller::default(), Instant::now());
        let failed = || format!("{from} was not backed up");
        let mut backup = Backup::of(&store, Arc::new(SystemClock::default())).await.with_context(failed)?;
        while let Some(piece) = backup.next().await.with_context(failed)? {
            out.write_all(&piece).with_context(failed)?;
            let rows = backup.rows().total();
            let rows_per_s = rows * 1_000 / (begun.elapsed().as_millis() as u64).max(1);
            teller.tell(Progress { step: "reading", rows, rows_per_s });
        }
        out.flush().with_context(failed)
    })
}

fn read_server(server: &ServerArgs, file: &mut File) -> anyhow::Result<()> {
    let mut answer = server.stream("/admin/backup")?;
    let mut teller = Teller::default();
    let (mut piece, mut bytes) = (vec![0; 64 << 10], 0);
    loop {
        let len = answer
            .read(&mut piece)
            .with_context(|| format!("{} did not send the whole backup; look at its log", server.url))?;
        if len == 0 {
            return Ok(());
        }
        file.write_all(&piece[..len])?;
        bytes += len as u64;
        teller.say(|| format!("receiving: {} MiB", bytes >> 20));
    }
}

fn check(file: &Path) -> anyhow::Result<Contents> {
    let named = || file.display().to_string();
    moving::verify(BufReader::new(File::open(file).with_context(named)?)).with_context(named)
}

fn told(contents: &Contents) -> String {
    let header = &contents.header;
    let mut out = format!(
        "rows      {}\ntaken     from {} to {} by release {}, row format {}\n\
         open      {} pending, {} lapsed, {} in doubt\n",
        contents.rows,
        &*rfc3339(header.started_at.0),
        &*rfc3339(contents.ended_at.0),
        header.release,
        header.row_format,
        counted(contents.pending, "fence"),
        contents.lapsed,
        contents.in_doubt
    );
    out += &keys::told_of_backup(&contents.keys);
    out
}
