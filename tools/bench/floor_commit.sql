insert into floor (payload) values ('0123456789abcdef0123456789abcdef');
