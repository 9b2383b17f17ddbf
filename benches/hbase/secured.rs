//! Costs of security: writes, scans and connections with each protection and with TLS, compared with the Java client in
//! the same modes, on one HBase that serves all of them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use hbase_rs::{
    Client, ClientConfig, Get,
    discovery::{Discovery, FixedDiscovery, ZooKeeperDiscovery},
    security::{
        Authentication, KerberosConfig, KerberosLogin, Protection, SecurityConfig, TlsConfig,
    },
};

use crate::{
    Options, SECURED,
    bench_cluster::BenchCluster,
    cells::{CellLoad, row},
    java_client::{JavaClient, JavaPrograms, JavaSettings},
    report::{self, Measurement, median, median_of, ratio, thousands},
    scans, table, writes,
};

/// Points of a row in one put.
const POINTS_PER_PUT: u32 = 6;
/// Rounds until the Java code is compiled.
const WARM_UP: usize = 3;
/// New clients of each mode.
const NEW_CLIENTS: usize = 21;

/// One kind of security, of both clients.
struct Mode {
    name: &'static str,
    java: JavaSettings,
    security: SecurityConfig,
    native: Client,
}

/// Measurements of one mode.
#[derive(Default)]
struct Rounds {
    java: Vec<Measurement>,
    native: Vec<Measurement>,
}

/// Directory of the cluster. Kerberos' library takes its configuration from the environment only, so the program is
/// started again with it, as the same process.
pub(crate) fn directory() -> PathBuf {
    use std::os::unix::process::CommandExt;

    const KRB5_CONFIG: &str = "KRB5_CONFIG";
    let directory = env::temp_dir().join(format!("bench-secured-{}", std::process::id()));
    let krb5_conf = directory.join("client/krb5.conf");
    if env::var_os(KRB5_CONFIG).is_none_or(|file| Path::new(&file) != krb5_conf) {
        let program = env::current_exe().expect("the program");
        let error =
            Command::new(program).args(env::args_os().skip(1)).env(KRB5_CONFIG, krb5_conf).exec();
        panic!("start with {KRB5_CONFIG}: {error}");
    }
    directory
}

/// Runs all modes on a cluster of their own; prints the tables.
pub(crate) fn run(options: &Options) {
    let directory = directory();
    let cluster = BenchCluster::open_secured(&directory);
    let classes = tempfile::tempdir().expect("temporary directory");
    let programs = JavaPrograms::compile(&cluster, classes.path());
    cluster.block_on(table::create(&cluster.client));
    let modes = modes(&cluster);
    if options.has(SECURED) {
        run_writes(&cluster, &programs, &modes, options);
    }
    run_scans(&cluster, &programs, &modes, options);
    run_connections(&cluster, &modes);
    cluster.close();
    fs::remove_dir_all(&directory).expect("the directory of the cluster");
}

fn modes(cluster: &BenchCluster) -> Vec<Mode> {
    let kerberos = [Protection::Authentication, Protection::Integrity, Protection::Privacy];
    let mut modes =
        vec![mode(cluster, "plain", SecurityConfig::default(), JavaSettings::default())];
    for protection in kerberos {
        modes.push(kerberos_mode(cluster, protection));
    }
    modes.push(tls_mode(cluster));
    modes
}

fn mode(
    cluster: &BenchCluster,
    name: &'static str,
    security: SecurityConfig,
    java: JavaSettings,
) -> Mode {
    let config = client_config(&security);
    let discovery = ZooKeeperDiscovery::new(&cluster.processes().client_quorum(), "/hbase");
    Mode { name, java, security, native: Client::new(config, discovery) }
}

fn client_config(security: &SecurityConfig) -> ClientConfig {
    let mut config = ClientConfig::new("bench");
    config.transport = security.transport().expect("the files of the cluster");
    config
}

fn kerberos_mode(cluster: &BenchCluster, protection: Protection) -> Mode {
    let files = cluster.processes().client_files();
    let realm = cluster.processes().realm().expect("a realm");
    let user = realm.principal(cluster::Kerberos::USER);
    let login = KerberosLogin::Keytab { file: files.keytab(), principal: Some(user.clone()) };
    let server = realm.principal(cluster::Kerberos::HBASE);
    let kerberos =
        KerberosConfig { protections: vec![protection], ..KerberosConfig::new(login, server) };
    let security = SecurityConfig {
        authentication: Authentication::Kerberos(kerberos),
        ..SecurityConfig::default()
    };
    let java = JavaSettings {
        flags: vec![
            format!("-Djava.security.krb5.conf={}", files.krb5_conf().display()),
            "-Dzookeeper.sasl.client=false".to_owned(),
        ],
        directories: vec![files.directory().to_owned()],
        properties: vec![
            ("hbase.rpc.protection".to_owned(), protection.name().to_owned()),
            ("hbase.client.netty.tls.enabled".to_owned(), "false".to_owned()),
            ("hbase.client.keytab.file".to_owned(), files.keytab().display().to_string()),
            ("hbase.client.keytab.principal".to_owned(), user),
        ],
    };
    mode(cluster, protection.name(), security, java)
}

fn tls_mode(cluster: &BenchCluster) -> Mode {
    let authority = cluster.processes().client_files().authority();
    let tls = TlsConfig { authorities: Some(authority.clone()), ..TlsConfig::default() };
    let security = SecurityConfig { tls: Some(tls), ..SecurityConfig::default() };
    let store = "hbase.rpc.tls.truststore";
    let java = JavaSettings {
        properties: vec![
            ("hbase.client.netty.tls.enabled".to_owned(), "true".to_owned()),
            (format!("{store}.location"), authority.display().to_string()),
            (format!("{store}.type"), "PEM".to_owned()),
        ],
        ..JavaSettings::default()
    };
    mode(cluster, "TLS", security, java)
}

fn run_writes(cluster: &BenchCluster, programs: &JavaPrograms, modes: &[Mode], options: &Options) {
    let load = options.load(POINTS_PER_PUT);
    let java = |program: &mut JavaClient| writes::java_round(cluster, program, load);
    let native = |client: &Client| writes::native_round(cluster, client, load);
    let mut programs = start(cluster, programs, modes, "BufferedMutatorLoad");
    let rounds = alternate(modes, &mut programs, options.rounds, java, native);
    print("writes, six points a put", modes, &rounds);
}

fn run_scans(cluster: &BenchCluster, programs: &JavaPrograms, modes: &[Mode], options: &Options) {
    let load: CellLoad = scans::fill(cluster, options);
    let java = |program: &mut JavaClient| scans::java_round(cluster, program, load);
    let native = |client: &Client| scans::native_round(cluster, client, load);
    let mut programs = start(cluster, programs, modes, "ScannerLoad");
    let rounds = alternate(modes, &mut programs, options.rounds, java, native);
    print("scans, rows of a hundred cells", modes, &rounds);
}

fn start(
    cluster: &BenchCluster,
    programs: &JavaPrograms,
    modes: &[Mode],
    program: &str,
) -> Vec<JavaClient> {
    modes.iter().map(|mode| programs.start_with(cluster, program, &mode.java)).collect()
}

/// Rounds of all modes in turn, after the Java code is compiled.
fn alternate(
    modes: &[Mode],
    programs: &mut [JavaClient],
    rounds: usize,
    mut java: impl FnMut(&mut JavaClient) -> Measurement,
    native: impl Fn(&Client) -> Measurement,
) -> Vec<Rounds> {
    for (mode, program) in modes.iter().zip(&mut *programs) {
        for _ in 0..WARM_UP {
            java(program);
        }
        native(&mode.native);
    }
    let mut all: Vec<Rounds> = modes.iter().map(|_| Rounds::default()).collect();
    for _ in 0..rounds {
        for ((mode, program), of_mode) in modes.iter().zip(&mut *programs).zip(&mut all) {
            of_mode.java.push(java(program));
            of_mode.native.push(native(&mode.native));
        }
    }
    all
}

fn print(what: &str, modes: &[Mode], all: &[Rounds]) {
    report::print_head(&[
        what,
        "client",
        "cells/s",
        "× plain",
        "client cpu-s per M",
        "server cpu-s per M",
    ]);
    let plain = &all[0];
    for (mode, rounds) in modes.iter().zip(all) {
        for (client, own, plain) in
            [("Java", &rounds.java, &plain.java), ("hbase-rs", &rounds.native, &plain.native)]
        {
            report::print_row(&[
                mode.name.to_owned(),
                client.to_owned(),
                thousands(median(own, |round| round.rate)),
                format!("{:.2}", ratio(own, plain, |round| round.rate)),
                format!("{:.3}", median(own, |round| round.client_cpu)),
                format!("{:.3}", median(own, |round| round.server_cpu)),
            ]);
        }
        report::print_row(&[
            mode.name.to_owned(),
            "hbase-rs ÷ Java".to_owned(),
            format!("**{:.2}**", ratio(&rounds.native, &rounds.java, |round| round.rate)),
            String::new(),
            format!("**{:.2}**", ratio(&rounds.native, &rounds.java, |round| round.client_cpu)),
            format!("{:.2}", ratio(&rounds.native, &rounds.java, |round| round.server_cpu)),
        ]);
    }
}

/// Times of the first get of new clients that share their tickets: connections to hbase:meta and to a region.
fn run_connections(cluster: &BenchCluster, modes: &[Mode]) {
    let discovery = ZooKeeperDiscovery::new(&cluster.processes().client_quorum(), "/hbase");
    let meta = cluster.block_on(discovery.meta_server());
    let meta = meta.expect("the server of hbase:meta");
    let get = Get::try_new(row(0, 0).to_vec()).expect("a get");
    report::print_head(&["first get of a new client", "median, ms", "more than plain, ms"]);
    let mut plain = None;
    for mode in modes {
        let config = client_config(&mode.security);
        let times = (0..NEW_CLIENTS).map(|_| {
            let client = Client::new(config.clone(), FixedDiscovery::new(Some(meta.clone()), None));
            let start = Instant::now();
            let row = cluster.block_on(client.table(table::name()).get(&get)).expect("a row");
            assert!(row.cells().next().is_some(), "the row was written");
            start.elapsed().as_secs_f64() * 1e3
        });
        let time = median_of(times.collect());
        let plain = *plain.get_or_insert(time);
        let more = format!("{:.2}", time - plain);
        report::print_row(&[mode.name.to_owned(), format!("{time:.2}"), more]);
    }
}
