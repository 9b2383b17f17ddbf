//! Files of certificates and keys.

use std::{
    fs::{self, FileTimes, OpenOptions},
    time::SystemTime,
};

use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

use super::{super::files::has_alternative_name, *};

/// The error of a connector.
#[track_caller]
fn error_of(config: &TlsConfig) -> String {
    let error = TlsConnector::new(config, &HBASE_SETTINGS).unwrap_err();
    TransportError::from(error).to_string()
}

#[track_caller]
fn check_text(text: &str, expected: &[&str]) {
    for one in expected {
        assert!(text.contains(one), "{one}: {text}");
    }
}

#[test]
fn unusable_authorities_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca");
    let name = file.to_str().unwrap();
    let authority = fs::read_to_string(data("one/ca.pem")).unwrap();
    let key = fs::read_to_string(data("one/node.key")).unwrap();
    let cut = &authority[..authority.len() - 30];
    for (content, expected) in [
        (&b""[..], &["no certificate in it", "PEM"][..]),
        (b"junk", &["no certificate in it"]),
        (key.as_bytes(), &["no certificate in it"]),
        (cut.as_bytes(), &["block 1: its end is missing"]),
        ([&authority[..], cut].concat().leak().as_bytes(), &["block 2: its end is missing"]),
        (authority.replace('M', "!").leak().as_bytes(), &["block 1", "base64"]),
        (
            b"-----BEGIN CERTIFICATE-----\nMTIz\n-----END CERTIFICATE-----\n",
            &["block 1", "certificates of authorities"],
        ),
        (b"\xfe\xed\xfe\xed\0\0", &["JKS", "keytool -importkeystore", "openssl pkcs12", "-nokeys"]),
        (b"\x30\x82", &["PKCS #12", "openssl pkcs12", "-nokeys"]),
    ] {
        fs::write(&file, content).unwrap();
        let text = error_of(&TlsConfig { authorities: Some(file.clone()), ..TlsConfig::default() });
        check_text(&text, expected);
        check_text(&text, &[name, "hbase.rpc.tls.truststore.location: ", "expected"]);
    }
    let mut config =
        TlsConfig { authorities: Some(directory.path().to_owned()), ..TlsConfig::default() };
    check_text(&error_of(&config), &["cannot read", "not a regular file"]);
    config.authorities = Some(directory.path().join("missing"));
    let text = error_of(&config);
    check_text(&text, &["hbase.rpc.tls.truststore.location: cannot read", "missing", "expected"]);
}

#[test]
fn unusable_identities_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("client");
    let read = |name: &str| fs::read_to_string(data(name)).unwrap();
    let (certificate, key) = (read("one/node.pem"), read("one/node.key"));
    for (content, expected) in [
        (key.clone(), &["no certificate in it", "private key in PEM"][..]),
        (certificate.clone(), &["no private key in it"]),
        (format!("{certificate}{}", read("one/elsewhere.key")), &["does not belong"]),
        (
            format!("{certificate}-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n"),
            &["is encrypted", "openssl pkey", ", line "],
        ),
        (format!("{certificate}{}", key.replace("MIG", "MIA")), &["expected"]),
    ] {
        fs::write(&file, content).unwrap();
        let text = error_of(&TlsConfig { identity: Some(file.clone()), ..config("one") });
        check_text(&text, expected);
        check_text(&text, &[file.to_str().unwrap()]);
    }
    fs::write(&file, [0x30, 0x82, 0, 1]).unwrap();
    let text = error_of(&TlsConfig { identity: Some(file.clone()), ..config("one") });
    check_text(&text, &["PKCS #12", "openssl pkcs12", "-nodes", "-srcstoretype BCFKS"]);
    // The order of certificate and key does not matter.
    fs::write(&file, format!("{key}{certificate}")).unwrap();
    let both = TlsConfig { identity: Some(file.clone()), ..config("one") };
    TlsConnector::new(&both, &HBASE_SETTINGS).unwrap();
}

#[test]
fn certificates_without_alternative_names_are_recognized() {
    for (name, expected) in
        [("one/node", true), ("one/elsewhere", true), ("one/nameless", false), ("one/ca", false)]
    {
        let file = data(&format!("{name}.pem"));
        let certificate = CertificateDer::from_pem_file(&file).unwrap();
        assert_eq!(has_alternative_name(&certificate), expected, "{name}");
    }
}

/// Replaces a file, whose time changes even if the clock of the file system is coarse.
fn replace(file: &Path, content: &[u8], age: u64) {
    fs::write(file, content).unwrap();
    let time = SystemTime::now() - Duration::from_secs(age);
    let file = OpenOptions::new().write(true).open(file).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

#[tokio::test]
async fn changed_files_are_read_for_the_next_connection() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ca.pem");
    let [one, two] = ["one/ca.pem", "two/ca.pem"].map(|name| fs::read(data(name)).unwrap());
    replace(&file, &two, 100);
    let config = TlsConfig { authorities: Some(file.clone()), ..TlsConfig::default() };
    let connector = TlsConnector::new(&config, &HBASE_SETTINGS).unwrap();
    let port = echo(tls("one/node")).await;
    let connect = || async {
        let socket = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        connector.connect(socket, "localhost").await
    };
    assert!(connect().await.is_err());
    replace(&file, &one, 90);
    exchange(&mut connect().await.unwrap(), b"x").await.unwrap();
    // Unusable and missing files: the former contents stay.
    replace(&file, b"junk", 80);
    exchange(&mut connect().await.unwrap(), b"x").await.unwrap();
    fs::remove_file(&file).unwrap();
    exchange(&mut connect().await.unwrap(), b"x").await.unwrap();
    replace(&file, &two, 70);
    assert!(connect().await.is_err());
}
