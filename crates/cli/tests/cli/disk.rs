//! A small disk of our own: ext4 in a file on a loop device, which can be cut off as a power failure would.
//! Needs root and loop devices; where they are missing it says so, loudly.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

pub struct Disk {
    dir: TempDir,
    mounted: bool,
}

impl Disk {
    /// A fresh disk of so many MiB; or why this machine cannot have one.
    pub fn new(mib: u64) -> Result<Self, String> {
        for tool in ["losetup", "mount", "umount", "mkfs.ext4"] {
            run(Command::new(tool).arg("--version")).or_else(|_| run(Command::new(tool).arg("-V")))?;
        }
        if !rustix::process::geteuid().is_root() {
            return Err("only root may mount".to_owned());
        }
        run(Command::new("losetup").arg("--find")).map_err(|why| format!("no loop device: {why}"))?;
        let dir = tempfile::tempdir().unwrap();
        let mut disk = Self { dir, mounted: false };
        std::fs::File::create(disk.image()).unwrap().set_len(mib << 20).unwrap();
        std::fs::create_dir(disk.mount_point()).unwrap();
        // From here on the machine can do it, so whatever fails is a failure.
        run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(disk.image())).unwrap();
        disk.mount();
        Ok(disk)
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn mount_point(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    /// Where the server keeps its data.
    pub fn data(&self) -> PathBuf {
        self.mount_point().join("data")
    }

    /// A file on this disk beside the data.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.mount_point().join(name)
    }

    fn mount(&mut self) {
        run(Command::new("mount").args(["-o", "loop"]).arg(self.image()).arg(self.mount_point())).unwrap();
        self.mounted = true;
    }

    fn unmount(&mut self) {
        run(Command::new("umount").arg(self.mount_point())).unwrap();
        self.mounted = false;
    }

    /// From now on nothing reaches the disk: neither data nor what the file system's own journal still holds in memory.
    pub fn cut(&self) {
        shutdown(&self.mount_point());
    }

    /// The power is back: the disk is read anew, and its journal replayed. No process may have a file open.
    pub fn back(&mut self) {
        self.unmount();
        self.mount();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            // A test that failed may have left files open: lazily, so that nothing stays behind.
            let _ = run(Command::new("umount").arg("--lazy").arg(self.mount_point()));
        }
    }
}

// EXT4_IOC_SHUTDOWN with EXT4_GOING_FLAGS_NOLOGFLUSH. An ioctl is unsafe code in Rust, which this workspace denies.
fn shutdown(mount_point: &Path) {
    let perl = "open(my $at, '<', $ARGV[0]) or die $!; my $how = pack('L', 2); ioctl($at, 0x8004587d, $how) or die $!";
    let python = "import fcntl, os, struct, sys; fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587d, struct.pack('I', 2))";
    let cut = run(Command::new("perl").arg("-e").arg(perl).arg(mount_point));
    cut.or_else(|_| run(Command::new("python3").arg("-c").arg(python).arg(mount_point))).unwrap();
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
