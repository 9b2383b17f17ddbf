//! Compares two versions of the file of users, for the audit log.

use std::collections::BTreeMap;

use super::{Identity, Users};

/// Maximum names in each list.
const MAX_NAMES: usize = 100;

/// The users that differ between two versions of the file. Each list has at most 100 names, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsersChange {
    /// Users that only the new version has.
    pub added: Vec<String>,
    /// Users that only the former version has.
    pub removed: Vec<String>,
    /// Users whose credentials, permissions, rights, limits or expiries differ.
    pub changed: Vec<String>,
    /// Number of users that differ, also of those that the lists omit.
    pub users: usize,
}

impl Users {
    /// Compares the users with a former version.
    #[must_use]
    pub fn change_from(&self, former: &Self) -> UsersChange {
        let (before, now) = (by_name(former), by_name(self));
        let mut change = UsersChange::default();
        let mut add = |list: fn(&mut UsersChange) -> &mut Vec<String>, name: &str| {
            change.users += 1;
            let list = list(&mut change);
            if list.len() < MAX_NAMES {
                list.push(name.to_owned());
            }
        };
        for (name, identities) in &now {
            match before.get(name) {
                None => add(|change| &mut change.added, name),
                Some(other) if other != identities => add(|change| &mut change.changed, name),
                Some(_) => {}
            }
        }
        for name in before.keys().filter(|name| !now.contains_key(*name)) {
            add(|change| &mut change.removed, name);
        }
        change
    }
}

/// The credentials of each user, in an order that does not depend on the lines.
fn by_name(users: &Users) -> BTreeMap<&str, Vec<&Identity>> {
    let mut names = BTreeMap::<&str, Vec<&Identity>>::new();
    for identity in users.identities() {
        names.entry(identity.name()).or_default().push(identity);
    }
    for of_name in names.values_mut() {
        of_name.sort_by_key(|identity| identity.credential);
    }
    names
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::auth::hash_token;

    fn users(lines: &[&str]) -> Users {
        let line = |line: &&str| {
            let (name, rest) = line.split_once(' ').unwrap();
            let (token, rest) = rest.split_once(' ').unwrap();
            format!("{name} {} {rest}\n", hash_token(token))
        };
        Users::parse(&lines.iter().map(line).collect::<String>()).unwrap()
    }

    #[test]
    fn users_are_compared_by_name_and_not_by_line() {
        let before = users(&["a 1 GUEST", "b 2 GUEST", "c 3 GUEST", "c 4 GUEST", "d 5 GUEST"]);
        let now = users(&["e 6 GUEST", "c 4 GUEST", "c 3 GUEST", "b 2 READER", "d 7 GUEST"]);
        let change = now.change_from(&before);
        assert_eq!(change.added, ["e"]);
        assert_eq!(change.removed, ["a"]);
        assert_eq!(change.changed, ["b", "d"]);
        assert_eq!(change.users, 4);
        assert_eq!(now.change_from(&now), UsersChange::default());
        let limited = users(&["a 1 GUEST points=1/s"]);
        assert_eq!(limited.change_from(&users(&["a 1 GUEST"])).changed, ["a"]);
    }
}
