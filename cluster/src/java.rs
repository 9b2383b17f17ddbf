//! Finds Java and builds JVM arguments.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Minimum release.
const MIN_RELEASE: u32 = 17;

/// Module flags that HBase needs.
const MODULES: &[&str] = &[
    "--add-modules=jdk.unsupported",
    "--add-opens=java.base/java.io=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-opens=java.base/java.util.concurrent=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "--add-exports=java.base/sun.net.dns=ALL-UNNAMED",
    "--add-exports=java.base/sun.net.util=ALL-UNNAMED",
    // OpenTSDB uses an internal exception of the class library.
    "--add-exports=java.base/sun.reflect.generics.reflectiveObjects=ALL-UNNAMED",
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
];

/// Java of a sufficient release from `JAVA_HOME`, else from `PATH`.
pub(crate) fn find() -> Option<PathBuf> {
    let home = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = home.into_iter().chain(env::split_paths(&path)).map(|bin| bin.join("java"));
    places.find(|java| release(java).is_some_and(|release| release >= MIN_RELEASE))
}

/// A tool of the JDK next to a `java`, for example its compiler.
pub(crate) fn tool(java: &Path, name: &str) -> Option<PathBuf> {
    let real = java.canonicalize().ok()?;
    let mut places = [java, &real].into_iter().map(|java| java.with_file_name(name));
    places.find(|file| file.is_file())
}

fn release(java: &Path) -> Option<u32> {
    if !java.is_file() {
        return None;
    }
    let output = Command::new(java).arg("-version").stdin(Stdio::null()).output().ok()?;
    parse_release(&String::from_utf8_lossy(&output.stderr))
}

/// Parses `openjdk version "17.0.15" 2025-04-15`; old releases such as `"1.8.0_292"` are 1.
fn parse_release(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("version \"")?;
    rest.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

/// Settings of a JVM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jvm<'a> {
    pub(crate) heap_mb: u32,
    /// True to use the optimizing compiler.
    pub(crate) bench: bool,
    /// Directory of the cluster, for temporary and crash files of the JVM.
    pub(crate) directory: &'a Path,
}

impl Jvm<'_> {
    /// Arguments before the class to run.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> = MODULES.iter().map(|&flag| flag.to_owned()).collect();
        arguments.push(format!("-Xmx{}m", self.heap_mb));
        let speed: &[&str] = if self.bench {
            &["-XX:+UseG1GC", "-XX:MaxDirectMemorySize=1g"]
        } else {
            // Verification of classes takes a fifth of a start, and the jars are pinned by checksums.
            &[
                "-XX:TieredStopAtLevel=1",
                "-XX:+UnlockDiagnosticVMOptions",
                "-XX:-BytecodeVerificationRemote",
                "-XX:+UseSerialGC",
                "-XX:MaxDirectMemorySize=256m",
            ]
        };
        let rest =
            ["-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError", "-Djava.net.preferIPv4Stack=true"];
        arguments.extend(speed.iter().chain(&rest).map(|&flag| flag.to_owned()));
        let directory = self.directory.display();
        arguments.push(format!("-Djava.io.tmpdir={directory}/tmp"));
        arguments.push(format!("-Dhadoop.home.dir={directory}"));
        arguments.push(format!("-XX:ErrorFile={directory}/logs/hs_err_%p.log"));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_the_first_number() {
        for (text, release) in [
            ("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK", Some(17)),
            ("java version \"1.8.0_292\"", Some(1)),
            ("openjdk version \"21\" 2023-09-19", Some(21)),
            ("openjdk version \"22-ea\"", Some(22)),
            ("no java here", None),
        ] {
            assert_eq!(parse_release(text), release, "{text}");
        }
    }

    #[test]
    fn bench_mode_uses_the_optimizing_compiler() {
        let arguments = |bench| {
            let jvm = Jvm { heap_mb: 128, bench, directory: Path::new("/d") };
            jvm.arguments().join(" ")
        };
        assert!(arguments(false).contains("TieredStopAtLevel=1"));
        assert!(!arguments(true).contains("TieredStopAtLevel"));
        assert!(arguments(true).contains("-Xmx128m"));
    }
}
