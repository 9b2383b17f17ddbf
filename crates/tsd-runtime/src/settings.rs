//! Structs of settings, defined together with their defaults.

/// Defines settings together with their defaults.
#[macro_export]
macro_rules! settings {
    ($(#[$attributes:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* pub $setting:ident: $type:ty = $default:expr,)*
    }) => {
        $(#[$attributes])*
        pub struct $name {
            $($(#[$doc])* pub $setting: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($setting: $default,)* }
            }
        }
    };
}
