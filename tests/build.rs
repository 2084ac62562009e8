//! Lets the tests that load the kernel's shared object offer it the data plane: their own functions, exported.

fn main() {
    println!("cargo::rustc-link-arg-tests=-rdynamic");
}
