//! What servers report in their logs, for clusters that a client of this process cannot ask.
//!
//! The Kerberos library takes its `krb5.conf` from the environment of the process. Safe Rust cannot set that, and a
//! process may start clusters with several realms. So a cluster that refuses plain clients is waited for by its logs.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::Path,
};

use hbase_rs::ServerName;

use super::Cluster;
use crate::node::Node;

impl Cluster {
    /// Succeeds if a master is active and initialized, or waits to become active.
    pub(super) fn logged_master(&self, node: Node) -> Result<(), String> {
        const READY: [&str; 2] =
            ["Master has completed initialization", "waiting to become the next active master"];
        let text = self.log_since_start(node);
        let ready = READY.iter().any(|message| text.contains(message));
        if ready { Ok(()) } else { Err("not initialized according to its log".to_owned()) }
    }

    /// Name of a region server that a master has registered.
    pub(super) fn logged_region_server(&self, node: Node) -> Result<ServerName, String> {
        let port = self.port(node).unwrap_or_default();
        let text = self.log_since_start(node);
        let name = serving(&text, port).ok_or("not serving according to its log")?;
        let registered = format!("Registering regionserver={name}");
        let mut masters = self.nodes().filter(|node| node.is_master());
        if masters.any(|master| self.log_since_start(master).contains(&registered)) {
            Ok(name)
        } else {
            Err("not registered according to the log of a master".to_owned())
        }
    }

    /// The log of the present process of a node.
    fn log_since_start(&self, node: Node) -> String {
        let start = self.members.get(&node).map_or(0, |member| member.log_start);
        read_from(&self.layout.log(node), start).unwrap_or_default()
    }
}

fn read_from(log: &Path, start: u64) -> std::io::Result<String> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::Start(start))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last name under which a region server with this port says that it serves.
fn serving(log: &str, port: u16) -> Option<ServerName> {
    let mut names = log.lines().filter_map(|line| {
        let (_, rest) = line.split_once("Serving as ")?;
        let mut fields = rest.splitn(4, ',');
        let (host, of_port, start) = (fields.next()?, fields.next()?, fields.next()?);
        ServerName::parse(&format!("{host},{of_port},{}", start.trim()))
    });
    names.rfind(|name| name.port() == port)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn the_last_name_of_the_port_counts() {
        let log = "INFO HRegionServer: Serving as localhost,7,100, RpcServer on x\n\
                   INFO HRegionServer: Serving as localhost,8,300, RpcServer on x\n\
                   INFO HRegionServer: Serving as localhost,7,200, RpcServer on x, sessionid=0\n";
        let name = serving(log, 7).unwrap();
        assert_eq!((name.port(), name.start_code()), (7, 200));
        assert_eq!(serving(log, 9), None);
        assert_eq!(serving("Serving as nonsense", 7), None);
    }

    #[test]
    fn a_log_is_read_from_the_start_of_its_process() {
        let directory = tempfile::TempDir::new().unwrap();
        let log = directory.path().join("log");
        std::fs::write(&log, "before\nafter\n").unwrap();
        assert_eq!(read_from(&log, 7).unwrap(), "after\n");
    }
}
