# HBase and ZooKeeper in one image, with exactly the jars of the lock file.
FROM eclipse-temurin:17-jre
COPY lock/hbase-2.6.4-hadoop3.lock image/fetch-jars.sh /opt/hbase/
ARG MAVEN_REPOSITORY
RUN /opt/hbase/fetch-jars.sh /opt/hbase/hbase-2.6.4-hadoop3.lock /opt/hbase/lib
COPY image/run-java.sh /opt/hbase/
ENTRYPOINT ["/opt/hbase/run-java.sh"]
