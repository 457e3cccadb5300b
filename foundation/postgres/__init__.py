"""PostgreSQL: pool and transactions, named statements, migrations, the database clock."""
