"""The page: its files, served as they are; `static/vendor` is fetched at set-up."""
