/* Return the hash of the sources and flags that this library was built from. */
const char *source_hash(void)
{
    return SOURCE_HASH;
}
