"""The processes of a server: started, owned, watched and ended."""
