//! The ids of jobs, and the addresses of the rows about them.
//! Never tells the ids of two tenants apart for certain: a reader compares the tenant in the row.

use std::fmt;

use crate::{
    item::{ItemId, hex, unhex},
    key::{Kind, RowKey, Tenant},
    time::Millis,
};

const TENANT_LEN: usize = 5;
const TIME_LEN: usize = 6;

/// Names a job. The jobs of a tenant are a range, the newest first.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub [u8; Self::LEN]);

impl JobId {
    pub const LEN: usize = 16;

    /// A new id. `random` tells jobs of one millisecond apart.
    pub fn new(tenant: &Tenant, now: Millis, random: u64) -> Self {
        let mut id = [0; Self::LEN];
        id[..TENANT_LEN].copy_from_slice(&Self::tenant_prefix(tenant));
        id[TENANT_LEN..TENANT_LEN + TIME_LEN].copy_from_slice(&(!now.0).to_be_bytes()[8 - TIME_LEN..]);
        id[TENANT_LEN + TIME_LEN..].copy_from_slice(&random.to_be_bytes()[3..]);
        Self(id)
    }

    /// The bytes that the ids of all jobs of a tenant begin with.
    pub fn tenant_prefix(tenant: &Tenant) -> [u8; TENANT_LEN] {
        ItemId::tenant_prefix(tenant)
    }

    /// Reads the id as partners see it.
    pub fn parse(text: &str) -> Option<Self> {
        unhex(text.strip_prefix("job_")?).map(Self)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job_{}", hex(&self.0))
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl RowKey {
    /// The row of a job.
    pub fn job(job: JobId) -> Self {
        Self { kind: Kind::Job, id: numbered(job, 0) }
    }

    /// The row of a chunk of a job's upload, by its number.
    pub fn job_chunk(job: JobId, number: u64) -> Self {
        Self { kind: Kind::JobChunk, id: numbered(job, number) }
    }

    /// The row of results of a job, by their first line.
    pub fn job_results(job: JobId, first_line: u64) -> Self {
        Self { kind: Kind::JobResults, id: numbered(job, first_line) }
    }

    /// The job that the row of a job, a chunk or of results is about.
    pub fn job_id(&self) -> JobId {
        let mut id = [0; JobId::LEN];
        id.copy_from_slice(&self.id[..JobId::LEN]);
        JobId(id)
    }
}

fn numbered(job: JobId, number: u64) -> [u8; 32] {
    let mut id = [0; 32];
    id[..JobId::LEN].copy_from_slice(&job.0);
    id[JobId::LEN..JobId::LEN + 8].copy_from_slice(&number.to_be_bytes());
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_jobs_of_a_tenant_come_first_and_ids_read_back() {
        let tenant = Tenant::new("acme");
        let (earlier, later) = (JobId::new(&tenant, Millis(1_000), 7), JobId::new(&tenant, Millis(2_000), 3));
        assert!(later < earlier);
        assert_ne!(earlier, JobId::new(&tenant, Millis(1_000), 8));
        assert_eq!(JobId::parse(&earlier.to_string()), Some(earlier));
        assert_eq!(RowKey::job_results(earlier, 5).job_id(), earlier);
        assert!(RowKey::job_chunk(earlier, 255) < RowKey::job_chunk(earlier, 256));
    }
}
